"""A run or an export with a name, and the calls that the server makes of it."""

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras import load
from t2t_keras.decoding.batching import batches, padded
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.sentence_attention import (
    SentenceAttention,
    sentence_attention,
)
from t2t_keras.decoding.texts import is_blank
from t2t_keras.decoding.translator import Hypothesis, Translator
from t2t_keras.export.client import ExportedHypothesis, ExportedTranslator
from t2t_keras.option import UserError

_ELEMENTS_AT_ONCE = 8000  # characters or ids in a batch of an export, with padding
_TOKENS = ("ids", "token_log_probs")  # what `score` returns for each token
_MOST_WEIGHTS = 250_000  # of attention to the source, in one answer


class TensorInfo(NamedTuple):
    """An input or output of a signature: a scalar if its rank is 0, else one per row.

    Attributes:
        dtype: TensorFlow's name of the dtype.
        rank: number of axes.
    """

    dtype: str
    rank: int


class Signature(NamedTuple):
    """The inputs and outputs of a signature, by name."""

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]

    @property
    def rows(self) -> list[str]:
        """The names of the inputs that have rows."""
        return [name for name, info in self.inputs.items() if info.rank]


class Call(NamedTuple):
    """What is called; values with equal calls are run together.

    Attributes:
        function: the name of a method of `ServedModel`.
        options: its keyword arguments, sorted by name.
    """

    function: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, function: Callable[..., Any], **options: Any) -> "Call":
        """Returns the call of a method with options, without those that are None."""
        given = {name: value for name, value in options.items() if value is not None}
        return cls(function.__name__, tuple(sorted(given.items())))


class ServedModel:
    """A translator with a name.

    The methods that take lists return one result for each element; the server calls
    them in one thread.

    Args:
        name: the model's name in URLs.
        translator: the translator.
        version: its version in URLs.
        languages: the codes of source and target; None: those of the problem's
            metrics, if they have any, or of the export's settings.
        **options: changes to the default decoding options.

    Attributes:
        name: the name.
        version: the version.
        languages: the codes of source and target; None: unknown.
        signatures: the signatures of TensorFlow Serving's REST interface; a run has
            those of an export that take no ids.
        beam_size: the default beam size.
        is_nested: whether outputs are nested expressions.
    """

    def __init__(
        self,
        name: str,
        translator: Translator | ExportedTranslator,
        *,
        version: int = 1,
        languages: tuple[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.version = version
        self._translator = translator
        self._run = translator if isinstance(translator, Translator) else None
        self._options = options  # of an export, which has no attribute for them
        if isinstance(translator, Translator):
            translator.options, self._options = translator.choose(**options), {}
            problem = translator.problem
            self.signatures = _run_signatures()
            self.is_nested = not problem.text_form.aligns_outputs
            languages = languages or problem.languages
            defaults: dict[str, Any] = vars(translator.options)
        else:
            self.signatures = {
                name: _export_signature(function)
                for name, function in translator.signatures.items()
            }
            settings = translator.settings
            self.is_nested = False
            if settings is not None:
                languages = languages or settings.languages
            defaults = translator.choose(**options)
        self.languages = languages
        self._defaults = {
            name: np.asarray(defaults[name]).item()
            for name in DecodingOptions.names("is_served")
            if name in defaults  # an earlier export has fewer
        }
        self.beam_size: int = self._defaults["beam_size"]

    @classmethod
    def load(
        cls,
        name: str,
        directory: Path,
        checkpoint: str | None = None,
        languages: tuple[str, str] | None = None,
        **options: Any,
    ) -> "ServedModel":
        """Loads a run or an export; an export's version is its directory's number.

        Raises:
            UserError: it cannot be loaded, or does not take the options.
        """
        number = directory.absolute().name
        version = int(number) if number.isdecimal() else 1
        translator = load(directory, checkpoint)
        return cls(name, translator, version=version, languages=languages, **options)

    @property
    def is_export(self) -> bool:
        """Whether the model is an export, which has no attention and no tokens."""
        return self._run is None

    def run(self, call: Call, values: list[Any]) -> Sequence[Any]:
        """Calls a method; returns its result for each value."""
        return getattr(self, call.function)(values, **dict(call.options))

    def warm_up(self, texts: Sequence[str]) -> list[None]:
        """Translates texts, which traces what most requests call."""
        found, export = self.n_best(texts, n_best=1), self._translator
        if isinstance(export, ExportedTranslator) and export.settings is None:
            nested = re.compile(r"\(.*\(.*\)\)")
            self.is_nested = all(nested.fullmatch(best.text) for best, *_ in found)
        return [None for _ in texts]

    def n_best(
        self, texts: Sequence[str], **options: Any
    ) -> Sequence[Sequence[Hypothesis | ExportedHypothesis]]:
        """Returns the n best outputs for each text; see `Translator.n_best`.

        Raises:
            UserError: the model is an export, and token scores or alignments are asked
                for; or see `Translator.n_best`.
        """
        for name in {"token_scores", "alignment"} & options.keys():
            self._require_run(name)
        return self._translator.n_best(texts, **self._options | options)

    def tokens(self, output: Hypothesis | ExportedHypothesis) -> list[str] | None:
        """Returns the tokens of an output; None for an export."""
        if self._run is None or not isinstance(output, Hypothesis):
            return None
        pieces = self._run.target_tokenizer.pieces
        return [pieces[token] for token in output.ids]

    def attention(
        self, values: Sequence[tuple[str, str | None]]
    ) -> list[SentenceAttention]:
        """Returns the attention weights of each text and its translation.

        Args:
            values: for each text, the text and an output, or None for the model's.

        Raises:
            UserError: a text is blank or too long, or the model is an export.
        """
        run = self._require_run("attention")
        form, hparams = run.problem.text_form, run.model.hparams
        results = []
        for text, target in values:
            source = form.source_text(text, run.options.raw)
            length = len(run.source_tokenizer.encode(source))
            longest = length
            if target is not None:
                target = form.target_text(source, target)
                longest = max(length, len(run.target_tokenizer.encode(target)))
            layers = max(hparams.num_layers, hparams.decoder_layers)
            maps = layers * hparams.num_heads
            if maps * length * longest > _MOST_WEIGHTS:
                raise UserError("text: too long to show its attention; give a sentence")
            results.append(sentence_attention(run, text, target))
        return results

    def predict(
        self, rows: Sequence[Mapping[str, Any]], *, signature: str, **scalars: Any
    ) -> list[dict[str, Any]]:
        """Runs a signature.

        Args:
            rows: a row of every input that has rows.
            signature: the name of the signature.
            **scalars: the other inputs.

        Returns:
            For each row the outputs, or the scalars if the signature has no rows.
        """
        if signature == "options":
            return [dict(self._defaults) for _ in rows]
        if isinstance(self._translator, ExportedTranslator):
            return self._predict_of_export(self._translator, rows, signature, scalars)
        run = self._require_run(signature)
        texts = [row["texts"] for row in rows]
        if signature == "score":
            scores = run.score(texts, [row["targets"] for row in rows])
            outputs = [
                score._asdict() | {name: list(getattr(score, name)) for name in _TOKENS}
                for score in scores
            ]
        else:
            n = scalars.get("n_best", self._defaults["n_best"])
            none = ("", -math.inf)
            found = self.n_best(texts, **scalars)
            filled = [
                [*((x.text, x.score) for x in row), *[none] * (n - len(row))]
                for row in found
            ]
            outputs = [
                {"texts": [x[0] for x in row], "scores": [x[1] for x in row]}
                for row in filled
            ]
        splits = signature != "score" and run.splits(run.options)
        return [
            output | {"is_truncated": not splits and self._is_too_long(run, text)}
            for output, text in zip(outputs, texts, strict=True)
        ]

    def _is_too_long(self, run: Translator, text: str) -> bool:
        """Returns whether a text has more tokens than the model is given at once."""
        source = run.problem.text_form.source_text(text, run.options.raw)
        length = len(run.source_tokenizer.encode(source))
        return length > run.options.max_source_length and not is_blank(text)

    def _predict_of_export(
        self,
        translator: ExportedTranslator,
        rows: Sequence[Mapping[str, Any]],
        signature: str,
        scalars: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        """Calls a signature of an export, in batches of rows of similar length."""
        inputs, outputs = self.signatures[signature]
        constants: dict[str, Any] = {}
        if not all(info.rank for info in inputs.values()):  # it takes the options
            constants = translator.choose(**scalars)
        elif signature == "serving_default" and self._options:
            signature, constants = "translate", translator.choose(**self._options)
        results: list[dict[str, Any]] = [{} for _ in rows]
        for batch in batches(
            [max(map(len, row.values())) for row in rows], _ELEMENTS_AT_ONCE
        ):
            columns = {
                name: [rows[i][name] for i in batch]
                for name, info in inputs.items()
                if info.rank
            }
            tensors = {
                name: tf.constant(padded(column) if inputs[name].rank == 2 else column)
                for name, column in columns.items()
            }
            try:
                found = translator.signatures[signature](**tensors, **constants)
            except tf.errors.InvalidArgumentError as error:
                reason = re.search(r"assertion failed: \[(.*?)\]", error.message)
                raise UserError(reason[1] if reason else error.message) from None
            arrays = {name: found[name].numpy() for name in outputs}
            for row, i in enumerate(batch):
                results[i] = {
                    name: _plain(array[row]) for name, array in arrays.items()
                }
        return results

    def _require_run(self, wanted: str) -> Translator:
        """Returns the translator of a run.

        Raises:
            UserError: the model is an export.
        """
        if self._run is None:
            raise UserError(
                f"{wanted}: model '{self.name}' is an export, which has none; serve "
                "the run directory"
            )
        return self._run


def request_value(value: Any, info: TensorInfo, place: str) -> Any:
    """Checks one row of an input, or a scalar, in a request to a signature.

    Args:
        value: the value from JSON; a string may be `{"b64": ...}`.
        info: the input.
        place: what error messages call the value.

    Raises:
        UserError: it is not what the input takes.
    """
    if info.dtype == "string":
        if isinstance(value, dict) and value.keys() == {"b64"}:
            try:
                value = base64.b64decode(value["b64"], validate=True).decode()
            except (ValueError, TypeError):
                raise UserError(f"{place}: b64 must be UTF-8 text in base 64") from None
        if not isinstance(value, str):
            raise UserError(f"{place} must be a string")
        return value
    if info.rank == 2:
        number = TensorInfo(info.dtype, 0)
        if not isinstance(value, list):
            raise UserError(f"{place} must be a list of integers")
        return [request_value(x, number, place) for x in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if info.dtype == "int32":
        if not is_number or value != value or abs(value) >= 2**31 or value % 1:
            raise UserError(f"{place} must be an integer of 32 bits")
        return int(value)
    if not is_number or not abs(value) < 1e38:
        raise UserError(f"{place} must be a finite number")
    return float(value)


def _plain(value: Any) -> Any:
    """Returns an array of one row as Python's lists, numbers and strings."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_plain(x) for x in value]
    return value.tolist()


def _run_signatures() -> dict[str, Signature]:
    """Returns the signatures that a run has, as `export_saved_model` describes them."""
    scalars = {
        name: TensorInfo(dtype, 0)
        for name, dtype in DecodingOptions.dtypes("is_served").items()
    }
    column = TensorInfo("string", 1)
    truncated = {"is_truncated": TensorInfo("bool", 1)}
    found = {"texts": TensorInfo("string", 2), "scores": TensorInfo("float32", 2)}
    score = {"log_prob": TensorInfo("float32", 1), "tokens": TensorInfo("int32", 1)}
    score |= {"ids": TensorInfo("int32", 2)}
    score |= {"token_log_probs": TensorInfo("float32", 2)}
    return {
        "serving_default": Signature({"texts": column}, found | truncated),
        "translate": Signature({"texts": column} | scalars, found | truncated),
        "score": Signature({"texts": column, "targets": column}, score | truncated),
        "options": Signature({}, scalars),
    }


def _export_signature(function: Any) -> Signature:
    """Returns the inputs and outputs of a loaded signature."""
    inputs, outputs = (
        {
            name: TensorInfo(spec.dtype.name, spec.shape.rank)
            for name, spec in specs.items()
        }
        for specs in (
            function.structured_input_signature[1],
            function.structured_outputs,
        )
    )
    return Signature(inputs, outputs)
