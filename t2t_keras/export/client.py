"""A Python client for SavedModels: maps texts to n-best texts."""

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
import tensorflow_text  # noqa: F401  (the tokenizers' operations)

from t2t_keras.data.files import read_json
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.texts import (
    batches,
    checked_pairs,
    checked_texts,
    replace_repeated,
)
from t2t_keras.export.formats import require_export, require_intact
from t2t_keras.option import UserError, check, diverted_stderr, first_line

if TYPE_CHECKING:
    from t2t_keras.decoding.scoring import Score

_log = logging.getLogger(__name__)

SETTINGS = "t2t_export.json"
_CHARACTERS_AT_ONCE = 8000  # characters in a batch, padding included


class ExportedHypothesis(NamedTuple):
    """One output.

    Attributes:
        text: the output, in one line.
        score: the log-probability over the length penalty.
    """

    text: str
    score: float

    @property
    def is_repaired(self) -> bool:
        """False: an export repairs no outputs."""
        return False


class ExportedTranslator:
    """A SavedModel that `export_saved_model` wrote, with the methods of `Translator`.

        translator = t2t_keras.load("served/1")
        translator.translate(["A house.", "A dog runs."])
        translator.n_best(["A house."], 4, alpha=1.0)
        translator.score(["A house."], ["Ein Haus."])

    It translates texts as the exported `Translator` does. Every call takes the options
    that requests may have (`beam_size`, `n_best`, `alpha`, `min_length`), whose
    defaults were given at export. All other options are fixed and stand in `settings`
    (`settings.decoding["raw"]` tells whether inputs are raw text), prefixes cannot be
    forced, and a hypothesis has only text and score.

    Args:
        export_dir: the directory of the export.

    Attributes:
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
        written = read_json(Path(export_dir) / SETTINGS, "export the model again")
        self.settings = None if written is None else SimpleNamespace(**written)
        if written and written.get("ids_only"):
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
        self._defaults = self.signatures["options"]()

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Returns the best output for each text; arguments are those of `n_best`."""
        options = {"n_best": 1} | options
        return [best[0].text for best in self.n_best(texts, None, prefixes, **options)]

    def n_best(
        self,
        texts: Sequence[str],
        n: int | None = None,
        prefixes: Sequence[str] | None = None,
        *,
        before: int = 0,
        advance: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[list[ExportedHypothesis]]:
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
        if n is not None:
            options["n_best"] = n
        inputs = self.choose(**options)
        texts = checked_texts(texts)
        results: list[list[ExportedHypothesis]] = [[] for _ in texts]
        for batch in _batches(texts):
            found = self._translate([texts[i] for i in batch], inputs)
            _warn_of_truncation(found, [before + i for i in batch])
            outputs = _hypotheses(found)

            def search_again(
                rows: list[int], wider: int, batch: list[int] = batch
            ) -> list[list[ExportedHypothesis]]:
                again = [texts[batch[i]] for i in rows]
                return _hypotheses(self._translate(again, inputs, wider))

            if inputs["n_best"] > 1:
                replace_repeated(outputs, int(inputs["beam_size"]), search_again)
            for i, best in zip(batch, outputs, strict=True):
                results[i] = best
            if advance is not None:
                advance(len(batch))
        return results

    def _translate(
        self, texts: list[str], inputs: dict[str, tf.Tensor], wider: int = 1
    ) -> dict[str, tf.Tensor]:
        """Translates a batch; beam size and n are `wider` times those of the inputs."""
        wide = {name: inputs[name] * wider for name in ("beam_size", "n_best")}
        translate = self.signatures["translate"]
        return translate(texts=tf.constant(texts), **inputs | wide)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> "list[Score]":
        """Returns the log-probability of each target, given its source.

        The targets have the form of the training data's (see `export_saved_model`).

        Raises:
            UserError: sources or targets are not lists of strings, or not of equal
                length.
        """
        from t2t_keras.decoding.scoring import Score  # it imports Keras

        sources, targets = checked_pairs(sources, targets)
        results = [Score(0.0, 0)] * len(sources)
        pairs = zip(sources, targets, strict=True)
        for batch in _batches([max(pair, key=len) for pair in pairs]):
            found = self.signatures["score"](
                texts=tf.constant([sources[i] for i in batch]),
                targets=tf.constant([targets[i] for i in batch]),
            )
            _warn_of_truncation(found, batch)
            for row, i in enumerate(batch):
                tokens = int(found["tokens"][row])
                each = [  # exports of earlier versions have neither
                    tuple(found[name][row, :tokens].numpy().tolist())
                    for name in ("ids", "token_log_probs")
                    if name in found
                ]
                results[i] = Score(float(found["log_prob"][row]), tokens, *each)
        return results

    def choose(self, **options: Any) -> dict[str, tf.Tensor]:
        """Returns the export's options with the given changes, as inputs of its graph.

        Args:
            **options: `beam_size`, `n_best`, `alpha`, `min_length`; an export of an
                earlier version has the first three.

        Raises:
            UserError: there is no such option, or its value is impossible.
        """
        chosen = dict(self._defaults)
        fixed: dict[str, Any] = getattr(self.settings, "decoding", {})
        for name in options:
            if name not in chosen:
                known = f" ({name} is {fixed[name]})" if name in fixed else ""
                raise UserError(
                    f"{name}: an export has it built in{known}; the options are "
                    f"{', '.join(chosen)}"
                )
        check(DecodingOptions, options)
        for name, value in options.items():
            chosen[name] = tf.cast(value, chosen[name].dtype)
        if chosen["n_best"] > chosen["beam_size"]:
            raise UserError(
                f"--n_best {chosen['n_best']} is more than the beam size, "
                f"{chosen['beam_size']}; raise --beam_size"
            )
        return chosen


def load_saved_model(export_dir: str | Path) -> Any:
    """Loads a SavedModel; its vocabularies are silent as in `sentence_piece_op`.

    Raises:
        UserError: TensorFlow cannot load it.
    """
    try:
        with diverted_stderr():
            return tf.saved_model.load(str(export_dir))
    except Exception as error:  # which one depends on the damage
        raise UserError(
            f"--export_dir: TensorFlow cannot load {export_dir}: "
            f"{first_line(error) or type(error).__name__}; copy or export the model "
            "again"
        ) from None


def _batches(texts: Sequence[str]) -> list[list[int]]:
    """Returns the indices of the texts in each batch."""
    return batches([len(text) for text in texts], _CHARACTERS_AT_ONCE)


def _hypotheses(found: dict[str, tf.Tensor]) -> list[list[ExportedHypothesis]]:
    """Returns the hypotheses that the signature `translate` has found."""
    results = []
    for row in zip(found["texts"].numpy(), found["scores"].numpy(), strict=True):
        hypotheses = [
            ExportedHypothesis(text.decode("utf-8", "replace"), float(score))
            for text, score in zip(*row, strict=True)
        ]
        left_over = ExportedHypothesis("", -math.inf)  # there are fewer than n
        results.append([x for x in hypotheses if x != left_over] or hypotheses[:1])
    return results


def _warn_of_truncation(found: dict[str, tf.Tensor], numbers: Sequence[int]) -> None:
    """Warns of texts that were truncated, as `Translator` does.

    Args:
        found: the outputs of a signature; older exports have no `is_truncated`.
        numbers: the numbers of the texts, from 0.
    """
    if "is_truncated" not in found:
        return
    for number, is_truncated in zip(
        numbers, found["is_truncated"].numpy(), strict=True
    ):
        if is_truncated:
            _log.warning(
                "input %d is longer than the export allows; its last tokens are left "
                "out (max_source_length of `t2t export --decode_hparams`)",
                number + 1,
            )
