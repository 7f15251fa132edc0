"""A Python client for SavedModels: maps texts to n-best texts."""

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (the tokenizers' operations)

from t2t_keras.arguments import checked
from t2t_keras.captured_stderr import diverted_stderr
from t2t_keras.data.plain_path import PlainPath
from t2t_keras.decoding.options import PHRASES, DecodingOptions
from t2t_keras.decoding.texts import (
    Hypothesis,
    Score,
    batches,
    checked_pairs,
    checked_texts,
    replace_repeated,
    splitting_note,
)
from t2t_keras.errors import UserError, first_line
from t2t_keras.export.formats import ExportSettings, require_export, require_intact
from t2t_keras.problem import is_blank
from t2t_keras.text.sentence_ends import split_sentences
from t2t_keras.type_hints import NonNegative

_log = logging.getLogger(__name__)


_CHARACTERS_AT_ONCE = 8000  # characters in a batch, padding included


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedModelSettings(ExportSettings):
    """The settings of a SavedModel.

    Attributes:
        ids_only: whether the graph has no tokenizers.
    """

    ids_only: bool = False


class ExportedTranslator:
    """A SavedModel that `export_saved_model` wrote, with the methods of `Translator`.

        translator = t2t_keras.load("served/1")
        translator.translate(["A house.", "A dog runs."])
        translator.n_best(["A house."], 4, alpha=1.0)
        translator.score(["A house."], ["Ein Haus."])

    It translates texts as the exported `Translator` does. Every call takes the options
    that requests may have (`beam_size`, `n_best`, `alpha`, `min_length`, `glossary`,
    `forbidden`). All other options are fixed and stand in `settings`
    (`settings.decoding["raw"]` tells whether inputs are raw text), prefixes cannot be
    forced, and a hypothesis has only text and score.

    Args:
        export_dir: the directory of the export.

    Attributes:
        options: the defaults of the options that requests may have.
        signatures: the functions of the SavedModel, by name.
        settings: the content of `t2t_export.json`, as attributes; None: an earlier
            version of t2t_keras wrote the export, without that file.

    Raises:
        UserError: it has no SavedModel, or not one that `t2t export` wrote, or one from
            ids to ids; or a file is damaged.
    """

    def __init__(self, export_dir: str | Path) -> None:
        require_export(export_dir)
        require_intact(Path(export_dir))
        self.settings = SavedModelSettings.read(Path(export_dir))
        if self.settings and self.settings.ids_only:
            raise UserError(
                f"--export_dir: {export_dir} maps ids to ids; call its signatures with "
                "TensorFlow, or export the model with --format savedmodel"
            )
        self._served = load_saved_model(export_dir)  # keeps the weights alive
        if not {"options", "translate"} <= set(self._served.signatures):
            raise UserError(
                f"--export_dir: {export_dir} was not written by `t2t export`"
            )
        self.signatures = self._served.signatures
        defaults = self.signatures["options"]()
        self._dtypes = {name: value.dtype for name, value in defaults.items()}
        self.options = {
            name: _phrases(value) if name in PHRASES else value.numpy().item()
            for name, value in defaults.items()
        }

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
        before: NonNegative = 0,
        advance: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the n best outputs for each text, best first, and at least one.

        Args:
            texts: the inputs, any number of them.
            n: the option `n_best`.
            prefixes: must be None, since an export cannot force prefixes.
            before: number of inputs in earlier calls, added to the input numbers in
                warnings.
            advance: called after each batch with the number of its inputs.
            **options: see `choose`.

        Raises:
            UserError: an option is impossible; the texts are not a list of strings;
                there are prefixes.
        """
        if prefixes is not None:
            raise UserError(
                "prefixes: an export cannot force them; load the run directory"
            )
        chosen = self.choose(**options | ({} if n is None else {"n_best": n}))
        # To the graph of an earlier version only white space is blank.
        texts = ["" if is_blank(text) else text for text in checked_texts(texts)]

        def search(rows: list[int], wider: int) -> list[list[Hypothesis]]:
            wide = {name: chosen[name] * wider for name in ("beam_size", "n_best")}
            columns = {"texts": [texts[i] for i in rows]}
            done = advance if wider == 1 else None
            found = self._run("translate", columns, self._inputs(chosen | wide), done)
            return [_hypotheses(row) for row in found]

        results = search([*range(len(texts))], 1)
        _warn_of_truncation([best[0].is_truncated for best in results], before)
        if chosen["n_best"] > 1:
            replace_repeated(results, chosen["beam_size"], search)
        return self._with_sentences(texts, results)

    def _with_sentences(
        self, texts: Sequence[str], results: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Returns outputs with the numbers of sentences, by the rules of the graph."""
        decoding = self.settings.decoding if self.settings else {}
        if not decoding.get("split_sentences"):
            return results
        counts = [len(split_sentences(text)) for text in texts]
        if several := sum(count > 1 for count in counts):
            _log.info(splitting_note(several, len(texts)))
        return [
            [output._replace(sentences=count) for output in outputs]
            for outputs, count in zip(results, counts, strict=True)
        ]

    def _inputs(self, options: dict[str, Any]) -> dict[str, tf.Tensor]:
        """Returns options as inputs of the graph, the same for all texts."""
        values = DecodingOptions.inputs(options, self._dtypes)
        return {k: tf.constant(v, self._dtypes[k]) for k, v in values.items()}

    def _run(
        self,
        signature: str,
        columns: dict[str, list[str]],
        options: dict[str, tf.Tensor],
        advance: Callable[[int], None] | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """Returns the outputs of a signature for each row of the columns."""
        longest = [max(map(len, row)) for row in zip(*columns.values(), strict=True)]
        results: list[dict[str, np.ndarray]] = [{} for _ in longest]
        for batch in batches(longest, _CHARACTERS_AT_ONCE):
            inputs = {k: tf.constant([v[i] for i in batch]) for k, v in columns.items()}
            found = self.signatures[signature](**inputs, **options)
            for name, tensor in found.items():
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
        for row in self._run("score", {"texts": sources, "targets": targets}, {}):
            tokens = int(row["tokens"])
            each: dict[str, Any] = {  # exports of earlier versions have neither
                name: tuple(row[name][:tokens].tolist())
                for name in ("ids", "token_log_probs")
                if name in row
            }
            each["is_truncated"] = bool(row.get("is_truncated"))
            results.append(Score(float(row["log_prob"]), tokens)._replace(**each))
        _warn_of_truncation([score.is_truncated for score in results])
        return results

    def choose(self, **options: Any) -> dict[str, Any]:
        """Returns the export's options with the given changes.

        Args:
            **options: see the class; an export of an earlier version has fewer.

        Raises:
            UserError: there is no such option, or its value is impossible.
        """
        for name in options:
            if name not in self.options:
                names = ", ".join(self.options)
                raise UserError(
                    f"{name}: an export has it built in; the options are {names}"
                )
        chosen = DecodingOptions(**self.options | options)
        return {name: getattr(chosen, name) for name in self.options}


def load_saved_model(export_dir: str | Path) -> Any:
    """Loads a SavedModel; its vocabularies are silent as in `sentence_piece_op`.

    Raises:
        UserError: TensorFlow cannot load it.
    """
    try:
        with diverted_stderr():
            plain = PlainPath(export_dir)
            served = tf.saved_model.load(str(plain.path))
            served.plain_path = plain  # as long as it may read a file
            return served
    except UserError:
        raise
    except Exception as error:  # which one depends on the damage
        raise UserError(
            f"--export_dir: TensorFlow cannot load {export_dir}: "
            f"{first_line(error) or type(error).__name__}; copy or export the model "
            "again"
        ) from None


def _phrases(value: tf.Tensor) -> tuple[Any, ...]:
    """Returns the phrases that an input of the graph has for all texts."""
    rows = (
        tuple(term.decode() for term in row) if isinstance(row, list) else row.decode()
        for row in value[0].numpy().tolist()
    )
    return tuple(row for row in rows if any(row))


def _hypotheses(row: dict[str, np.ndarray]) -> list[Hypothesis]:
    """Returns the hypotheses that the signature `translate` has found for a text."""
    is_truncated = bool(row.get("is_truncated"))  # older exports lack it
    hypotheses = [
        Hypothesis(
            text.decode("utf-8", "replace"), float(score), is_truncated=is_truncated
        )
        for text, score in zip(row["texts"], row["scores"], strict=True)
    ]
    # The rest are left over, where there are fewer than n.
    return [x for x in hypotheses if x[:2] != ("", -math.inf)] or hypotheses[:1]


def _warn_of_truncation(is_truncated: Sequence[bool], before: int = 0) -> None:
    """Warns of texts that were truncated, as `Translator` does.

    Args:
        is_truncated: whether each text was.
        before: number of texts in earlier calls.
    """
    for number in np.flatnonzero(is_truncated):
        _log.warning(
            "input %d is longer than the export allows; its last tokens are left out "
            "(max_source_length of `t2t export --decode_hparams`)",
            before + number + 1,
        )
