"""A client of the exported model, in Python: texts in, n-best texts out."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_text  # noqa: F401  (the tokenizers' operations)

from t2t_keras.decoding.batching import batches
from t2t_keras.errors import UserError

_CHARACTERS_AT_ONCE = 8000  # in a batch, padding included


class ExportedHypothesis(NamedTuple):
    """One output.

    Attributes:
        text: one line.
        score: log-probability over length penalty.
    """

    text: str
    score: float


class ExportedTranslator:
    """A SavedModel that `export_saved_model` wrote, called as a `Translator` is.

        translator = ExportedTranslator("served/1")
        translator.n_best(["A house."], n_best=4, alpha=1.0)

    `beam_size`, `n_best` and `alpha` may be given to any call; those of the export are
    the defaults. Every other option is built in.

    Args:
        export_dir: the directory of the export.

    Raises:
        UserError: it holds no SavedModel, or one of something else.
    """

    def __init__(self, export_dir: str | Path) -> None:
        if not (Path(export_dir) / "saved_model.pb").exists():
            raise UserError(f"--export_dir: {export_dir} has no saved_model.pb")
        self._served = tf.saved_model.load(str(export_dir))  # it holds the weights
        if not {"options", "translate"} <= set(self._served.signatures):
            raise UserError(
                f"--export_dir: {export_dir} was not written by `t2t export`"
            )
        self._defaults = self._served.signatures["options"]()

    def n_best(
        self, texts: Sequence[str], **options: Any
    ) -> list[list[ExportedHypothesis]]:
        """Returns the n best outputs of each text, best first, and at least one.

        Args:
            texts: the inputs, in any number.
            **options: see `choose`.

        Raises:
            UserError: as `choose`.
        """
        inputs = self.choose(**options)
        translate = self._served.signatures["translate"]
        results: list[list[ExportedHypothesis]] = [[] for _ in texts]
        for batch in batches([len(text) for text in texts], _CHARACTERS_AT_ONCE):
            found = translate(texts=tf.constant([texts[i] for i in batch]), **inputs)
            for i, outputs, scores in zip(
                batch, found["texts"].numpy(), found["scores"].numpy(), strict=True
            ):
                hypotheses = [
                    ExportedHypothesis(text.decode("utf-8", "replace"), float(score))
                    for text, score in zip(outputs, scores, strict=True)
                ]
                left_over = ExportedHypothesis("", -math.inf)  # there are fewer than n
                results[i] = [x for x in hypotheses if x != left_over] or hypotheses[:1]
        return results

    def choose(self, **options: Any) -> dict[str, tf.Tensor]:
        """Returns the export's options with some changed, as inputs of its graph.

        Args:
            **options: `beam_size`, `n_best`, `alpha`.

        Raises:
            UserError: there is no such option, or its value is impossible.
        """
        chosen = dict(self._defaults)
        for name, value in options.items():
            if name not in chosen:
                raise UserError(
                    f"{name}: an export has it built in; the options are "
                    f"{', '.join(chosen)}"
                )
            chosen[name] = tf.cast(value, chosen[name].dtype)
        for name in ("beam_size", "n_best"):
            if chosen[name] < 1:
                raise UserError(f"{name} must be at least 1")
        if chosen["n_best"] > chosen["beam_size"]:
            raise UserError(
                f"--n_best {chosen['n_best']} is more than the beam size, "
                f"{chosen['beam_size']}; raise --beam_size"
            )
        return chosen
