"""A client for SavedModels whose texts only the graph can encode and write.

Earlier versions exported no vocabularies, and a problem that is not registered has its
text processor in the graph alone. All other exports are engines (`SavedModelEngine`).
"""

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.checking import NonNegative, checked
from t2t_keras.decoding.batches import batches
from t2t_keras.decoding.engine import Hypothesis, Score, replace_duplicates
from t2t_keras.decoding.inputs import checked_pairs, checked_texts, splitting_note
from t2t_keras.decoding.options import EMPTY_PHRASES, DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.export.settings import ExportSettings
from t2t_keras.text.sentences import is_blank, split_sentences

_log = logging.getLogger(__name__)

_BATCH_CHARACTERS = 8000  # padding included


class TextSavedModel:
    """A SavedModel with the methods of `Translator`, by its signatures of strings.

    Every call takes the options that requests may have (`beam_size`, `n_best`, `alpha`,
    `min_length`, `glossary`, `forbidden`). All other options are built in, prefixes
    cannot be forced, and a hypothesis has only text and score.

    Args:
        served: what `load_saved_model` returned.
        settings: the settings of the export; None: an earlier version wrote none.

    Attributes:
        engine_name: see `Translator`.
        options: the decoding options of the export.
        request_options: the names of the options that requests may have.
        settings: see above.
    """

    engine_name = "tensorflow"

    def __init__(self, served: tf.Module, settings: ExportSettings | None) -> None:
        # `served` keeps the weights alive.
        self._served = served
        self._signatures = served.signatures
        self.settings = settings
        defaults = self._signatures["options"]()
        self._dtypes = {name: value.dtype for name, value in defaults.items()}
        self.request_options = tuple(defaults)
        recorded = settings.decoding if settings else {}
        names = {field.name for field in dataclasses.fields(DecodingOptions)}
        # The graph has the constraint.
        names.remove("constraint")
        values = {name: recorded[name] for name in recorded.keys() & names}
        for name, value in defaults.items():
            is_phrases = name in EMPTY_PHRASES
            values[name] = _phrases(value) if is_phrases else value.numpy().item()
        self.options = DecodingOptions(**values)

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Returns the best output for each text; arguments are those of `n_best`."""
        return [best[0].text for best in self.n_best(texts, 1, prefixes, **options)]

    @checked
    def n_best(
        self,
        texts: Iterable[str],
        n: int | None = None,
        prefixes: Iterable[str] | None = None,
        *,
        start_index: NonNegative = 0,
        advance: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the n best outputs for each text, best first, and at least one.

        Args:
            texts: the inputs, any number of them.
            n: the option `n_best`.
            prefixes: must be None, since an export cannot force prefixes.
            start_index: number of inputs in earlier calls, added to the input numbers
                in warnings.
            advance: called after each batch with the number of its inputs.
            **options: see `choose`.

        Raises:
            UserError: an option is impossible; the texts are not a list of strings;
                there are prefixes.
        """
        if prefixes is not None:
            raise UserError(
                "prefixes: a SavedModel cannot force them; load the run directory"
            )
        if n is not None:
            options["n_best"] = n
        resolved = self.choose(**options)
        # To the graph of an earlier version only white space is blank.
        texts = ["" if is_blank(text) else text for text in checked_texts(texts)]

        results = self._search(texts, resolved, advance)
        _warn_of_truncation([best[0].is_truncated for best in results], start_index)
        if resolved.n_best > 1:
            replace_duplicates(
                results,
                resolved.beam_size,
                lambda rows, beam_multiplier: self._search(
                    [texts[i] for i in rows],
                    dataclasses.replace(
                        resolved,
                        beam_size=resolved.beam_size * beam_multiplier,
                        n_best=resolved.n_best * beam_multiplier,
                    ),
                ),
            )
        return self._with_sentences(texts, results)

    def _search(
        self,
        texts: Sequence[str],
        options: DecodingOptions,
        advance: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Returns the outputs for texts."""
        values = DecodingOptions.inputs(vars(options), self._dtypes)
        inputs = {
            name: tf.constant(value, self._dtypes[name])
            for name, value in values.items()
        }
        rows = self._run("translate", {"texts": texts}, inputs, advance)
        return [_hypotheses(row) for row in rows]

    def _with_sentences(
        self, texts: Sequence[str], results: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Returns outputs with the numbers of sentences, by the rules of the graph."""
        if not self.options.split_sentences:
            return results
        counts = [len(split_sentences(text)) for text in texts]
        if several := sum(count > 1 for count in counts):
            _log.info(splitting_note(several, len(texts)))
        for outputs, count in zip(results, counts, strict=True):
            for k, output in enumerate(outputs):
                outputs[k] = output._replace(sentences=count)
        return results

    def _run(
        self,
        signature: str,
        columns: Mapping[str, Sequence[str]],
        options: dict[str, tf.Tensor],
        advance: Callable[[int], None] | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """Returns the outputs of a signature for each row of the columns."""
        lengths = [max(map(len, row)) for row in zip(*columns.values(), strict=True)]
        results: list[dict[str, np.ndarray]] = [{} for _ in lengths]
        for batch in batches(lengths, _BATCH_CHARACTERS):
            inputs = dict(options)
            for name, texts in columns.items():
                inputs[name] = tf.constant([texts[i] for i in batch])
            tensors = self._signatures[signature](**inputs)
            for name, tensor in tensors.items():
                for i, value in zip(batch, tensor.numpy(), strict=True):
                    results[i][name] = value
            if advance is not None:
                advance(len(batch))
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], **options: Any
    ) -> list[Score]:
        """Returns the log-probability of each target, given its source.

        The targets have the form of the training data's (see `export_saved_model`).

        Args:
            sources: the sources.
            targets: the targets.
            **options: see `choose`; none of them changes a score.

        Raises:
            UserError: sources or targets are not lists of strings, or not of equal
                length.
        """
        self.choose(**options)
        sources, targets = checked_pairs(sources, targets)
        results = []
        columns = {"texts": sources, "targets": targets}
        for row in self._run("score", columns, {}):
            tokens = int(row["tokens"])
            score = Score(
                float(row["log_prob"]),
                tokens,
                is_truncated=bool(row.get("is_truncated")),
            )
            if "ids" in row:  # exports of earlier versions lack both
                score = score._replace(
                    ids=tuple(row["ids"][:tokens].tolist()),
                    token_log_probs=tuple(row["token_log_probs"][:tokens].tolist()),
                )
            results.append(score)
        _warn_of_truncation([score.is_truncated for score in results])
        return results

    def choose(self, **options: Any) -> DecodingOptions:
        """Returns the export's options with the given changes.

        Args:
            **options: see the class; an export of an earlier version has fewer.

        Raises:
            UserError: there is no such option, or its value is impossible.
        """
        for name in options:
            if name not in self.request_options:
                names = ", ".join(self.request_options)
                raise UserError(
                    f"{name}: an export has it built in; the options are {names}"
                )
        return dataclasses.replace(self.options, **options)


def _phrases(value: tf.Tensor) -> tuple[Any, ...]:
    """Returns the phrases that an input of the graph has for all texts."""
    phrases = []
    for row in value[0].numpy().tolist():
        is_pair = isinstance(row, list)
        phrase = tuple(map(bytes.decode, row)) if is_pair else row.decode()
        if any(phrase):
            phrases.append(phrase)
    return tuple(phrases)


def _hypotheses(row: dict[str, np.ndarray]) -> list[Hypothesis]:
    """Returns the hypotheses that the signature `translate` has found for a text."""
    is_truncated = bool(row.get("is_truncated"))  # older exports lack it
    hypotheses = [
        Hypothesis(
            text.decode("utf-8", "replace"), float(score), is_truncated=is_truncated
        )
        for text, score in zip(row["texts"], row["scores"], strict=True)
    ]
    # Where there are fewer than n, the graph fills up with empty outputs.
    return [x for x in hypotheses if x[:2] != ("", -math.inf)] or hypotheses[:1]


def _warn_of_truncation(is_truncated: Sequence[bool], start_index: int = 0) -> None:
    """Warns of texts that were truncated, as `Translator` does.

    Args:
        is_truncated: whether each text was.
        start_index: number of texts in earlier calls.
    """
    for i in np.flatnonzero(is_truncated):
        _log.warning(
            "input %d is longer than the export allows; its last tokens are left out "
            "(max_source_length of `t2t export --decode_hparams`)",
            start_index + i + 1,
        )
