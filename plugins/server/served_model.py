"""A run or an export with a name, and what the server asks of it."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras import load
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.texts import batches, is_blank
from t2t_keras.decoding.translator import Translator
from t2t_keras.export.client import ExportedTranslator
from t2t_keras.option import UserError

_CHARACTERS_AT_ONCE = 8000  # characters in a batch of an export, with padding
_TOKENS = ("ids", "token_log_probs")  # what `score` returns for each token


class Unwanted(Exception):
    """Nobody waits for the results any more."""


class ServedModel:
    """A translator with a name.

    Args:
        name: the model's name in URLs.
        translator: the translator.
        version: its version in URLs.
        **options: changes to the default decoding options.

    Attributes:
        name: the name.
        version: the version.
        defaults: the default values of the options that requests may have.
    """

    def __init__(
        self,
        name: str,
        translator: Translator | ExportedTranslator,
        *,
        version: int = 1,
        **options: Any,
    ) -> None:
        self.name = name
        self.version = version
        self._translator = translator
        self._options = options  # of an export, which has no attribute for them
        if isinstance(translator, Translator):
            translator.options, self._options = translator.choose(**options), {}
            defaults: dict[str, Any] = vars(translator.options)
        else:
            defaults = translator.choose(**options)
        self.defaults = {
            name: np.asarray(defaults[name]).item()
            for name in DecodingOptions.names("is_served")
            if name in defaults  # an earlier export has fewer
        }

    @classmethod
    def load(
        cls, name: str, directory: Path, checkpoint: str | None = None, **options: Any
    ) -> "ServedModel":
        """Loads a run or an export; an export's version is its directory's number.

        Raises:
            UserError: it cannot be loaded, or does not take the options.
        """
        number = directory.absolute().name
        version = int(number) if number.isdecimal() else 1
        return cls(name, load(directory, checkpoint), version=version, **options)

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
            rows: the inputs of each row.
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
            return [dict(self.defaults) for _ in rows]
        texts = [row["texts"] for row in rows]
        targets = [row["targets"] for row in rows if "targets" in row]
        is_run = isinstance(self._translator, Translator)
        call: Callable[..., list[dict[str, Any]]] = _of_run if is_run else _of_export
        options = self._options | options
        return call(self._translator, texts, targets, options, advance)


def _of_run(
    run: Any,
    texts: list[str],
    targets: list[str],
    options: dict[str, Any],
    advance: Callable[[int], None],
) -> list[dict[str, Any]]:
    """Computes the outputs of the signature `score` or `translate`."""
    outputs: list[dict[str, Any]]
    if targets:
        outputs = [
            score._asdict() | {name: list(getattr(score, name)) for name in _TOKENS}
            for score in run.score(texts, targets)
        ]
    else:
        n = options.get("n_best", run.options.n_best)
        outputs = []
        for row in run.n_best(texts, advance=advance, **options):
            missing = n - len(row)
            scores = [x.score for x in row] + [-math.inf] * missing
            outputs.append(
                {"texts": [x.text for x in row] + [""] * missing, "scores": scores}
            )
    splits = not targets and run.splits(run.options)
    for text, output in zip(texts, outputs, strict=True):
        source = run.problem.text_form.source_text(text, run.options.raw)
        length = len(run.source_tokenizer.encode(source))
        is_long = length > run.options.max_source_length and not is_blank(text)
        output["is_truncated"] = is_long and not splits
    return outputs


def _of_export(
    export: Any,
    texts: list[str],
    targets: list[str],
    options: dict[str, Any],
    advance: Callable[[int], None],
) -> list[dict[str, Any]]:
    """Calls the signature `score` or `translate` for texts of similar length."""
    signature = export.signatures["score" if targets else "translate"]
    constants = {} if targets else export.choose(**options)
    results: list[dict[str, Any]] = [{} for _ in texts]
    longest = [max(map(len, row)) for row in zip(texts, targets or texts, strict=True)]
    for batch in batches(longest, _CHARACTERS_AT_ONCE):
        inputs = {"texts": tf.constant([texts[i] for i in batch])}
        if targets:
            inputs["targets"] = tf.constant([targets[i] for i in batch])
        try:
            found = signature(**inputs, **constants)
        except tf.errors.InvalidArgumentError as error:
            reason = re.search(r"assertion failed: \[(.*?)\]", error.message)
            raise UserError(reason[1] if reason else error.message) from None
        arrays = {name: tensor.numpy() for name, tensor in found.items()}
        for row, i in enumerate(batch):
            results[i] = {name: _plain(array[row]) for name, array in arrays.items()}
            for name in _TOKENS if targets else ():  # of earlier exports: none
                if name in results[i]:
                    results[i][name] = results[i][name][: results[i]["tokens"]]
        advance(len(batch))
    return results


def _plain(value: Any) -> Any:
    """Returns an array of one row as Python's lists, numbers and strings."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [text.decode("utf-8", "replace") for text in value]
    return value.tolist()
