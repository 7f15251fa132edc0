"""A run or an export, and what the server asks of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.texts import is_blank


class Unwanted(Exception):
    """Nobody waits for the results any more."""


class ServedModel:
    """A translator with the default options of the server.

    Args:
        translator: the translator of a run or of an export (which has `scored`).
        **options: changes to the default decoding options.

    Attributes:
        defaults: the default values of the options that requests may have.
        is_run: whether the translator is a run's, not an export's.
    """

    def __init__(self, translator: Any, **options: Any) -> None:
        self._translator = translator
        self.is_run = not hasattr(translator, "scored")
        self._options = options
        chosen = translator.choose(**options)
        values = chosen if isinstance(chosen, dict) else vars(chosen)
        names = DecodingOptions.names("is_served")  # an earlier export has fewer
        self.defaults = {name: values[name] for name in names if name in values}

    def predict(
        self,
        signature: str,
        rows: Sequence[Mapping[str, str]],
        options: dict[str, Any],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> list[dict[str, Any]]:
        """Returns the outputs of a signature for each row.

        The server calls this in several threads. A run has the same signatures as an
        export, except for those of ids.

        Args:
            signature: the name of the signature.
            rows: the texts of each row.
            options: the decoding options.
            is_wanted: asked now and then whether anybody waits for the results.

        Raises:
            UserError: the inputs are impossible.
            Unwanted: nobody waits any more.
        """

        def advance(count: int) -> None:
            if not is_wanted():
                raise Unwanted

        if signature == "options":
            return [DecodingOptions.inputs(self.defaults, self.defaults)]
        texts = [row["texts"] for row in rows]
        if signature == "score":
            return self._score(texts, [row["targets"] for row in rows])
        options = self._options | options
        found = self._translator.n_best(texts, advance=advance, **options)
        n = options.get("n_best", self.defaults["n_best"])
        outputs = []
        for text, row in zip(texts, found, strict=True):
            pairs = [(x.text, x.score) for x in row]
            pairs += [("", -math.inf)] * (n - len(row))
            listed, scores = zip(*pairs, strict=True)
            cut = self._is_truncated(text, True) if self.is_run else row[0].is_truncated
            outputs.append({"texts": listed, "scores": scores, "is_truncated": cut})
        return outputs

    def _score(self, texts: list[str], targets: list[str]) -> list[dict[str, Any]]:
        """Returns the outputs of the signature `score`."""
        if not self.is_run:
            scored = self._translator.scored(texts, targets)
        else:
            scores = self._translator.score(texts, targets, **self._options)
            are_truncated = [self._is_truncated(text, False) for text in texts]
            scored = list(zip(scores, are_truncated, strict=True))
        return [score._asdict() | {"is_truncated": is_cut} for score, is_cut in scored]

    def _is_truncated(self, text: str, may_split: bool) -> bool:
        """Returns whether a run truncates a text."""
        run = self._translator
        chosen = run.choose(**self._options)
        source = run.problem.text_form.source_text(text, chosen.raw)
        is_long = len(run.source_tokenizer.encode(source)) > chosen.max_source_length
        return is_long and not is_blank(text) and not (may_split and run.splits(chosen))
