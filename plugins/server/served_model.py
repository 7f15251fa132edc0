"""A run or an export, and what the server asks of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t2t_keras.decoding.options import DecodingOptions


class Unwanted(Exception):
    """Nobody waits for the results any more."""


class ServedModel:
    """A translator with the default options of the server.

    Args:
        translator: the translator of a run or of an export (which has `settings`).
        **options: changes to the default decoding options.

    Attributes:
        defaults: the default values of the options that requests may have.
        is_run: whether the translator is a run's, not an export's.
        split_sentences: whether texts of several sentences are split into them.
    """

    def __init__(self, translator: Any, **options: Any) -> None:
        self._translator = translator
        self.is_run = not hasattr(translator, "settings")
        self._options = options
        resolved = translator.choose(**options)
        names = DecodingOptions.names("is_served")
        # The export of an earlier version has fewer.
        available = getattr(translator, "request_options", names)
        self.defaults = {
            name: getattr(resolved, name) for name in names if name in available
        }
        self.split_sentences: bool = resolved.split_sentences

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
            targets = [row["targets"] for row in rows]
            scores = self._translator.score(texts, targets, **self._options)
            return [score._asdict() for score in scores]
        options = self._options | options
        found = self._translator.n_best(texts, advance=advance, **options)
        n = options.get("n_best", self.defaults["n_best"])
        outputs = []
        for row in found:
            pairs = [(x.text, x.score) for x in row]
            pairs += [("", -math.inf)] * (n - len(row))
            listed, scores = zip(*pairs, strict=True)
            cut = row[0].is_truncated
            outputs.append({"texts": listed, "scores": scores, "is_truncated": cut})
        return outputs
