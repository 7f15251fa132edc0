"""The JSON of TensorFlow Serving's REST interface, its limits, and its work.

A request becomes rows, each with its texts and options. The work of the rows, by which
they are limited and ordered, is an estimate of what a model computes for them.
"""

import base64
import collections
import dataclasses
import gzip
import io
import itertools
import json
import re
import zlib
from typing import Any, NamedTuple, TypeAlias

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError, did_you_mean, require_unicode, short_repr
from t2t_keras.options import check_options, option, parse_value

# Values of `DecodingOptions` by name.
Options: TypeAlias = dict[str, Any]
# The signature, and the options with their names: rows with equal keys can be run
# together.
Key: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]
# The texts of a row, and what a signature returns for it, by name.
Texts: TypeAlias = dict[str, str]
Outputs: TypeAlias = dict[str, object]

NUM_ALTERNATIVES = 8  # words that the signature `alternatives` returns
ACCEPTED = "gzip, identity"  # the compressions of a body, for `Accept-Encoding`

# The keys of a body.
_KEYS = ("signature_name", "instances", "inputs")
_DTYPES = DecodingOptions.dtypes("is_served")
# A string of JSON; the last one may have no end.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# RFC 9110 has two names for it; "": there is no header.
_GZIP = ("gzip", "x-gzip")
_CODINGS = ("", "identity", *_GZIP)
_EXTRA_LENGTH = 64  # a rough bound on how much longer than its source an output is
_PHRASE_WEIGHT = 4  # the work of a phrase's byte, in bytes of a sentence
_PHRASE_BOUNDARIES = 2  # a phrase is as much work as with this number of more bytes
# A sentence is cheap up to this work for each hypothesis of the default beam size.
_CHEAP = 400


class TooLarge(Exception):
    """A request exceeds a limit of size."""


class UnsupportedEncoding(Exception):
    """A body has a coding that the server does not read."""


class _Signature(NamedTuple):
    """The inputs of a signature.

    Attributes:
        texts: the texts.
        optional: further texts, "" by default.
        has_options: whether decoding options are also inputs.
    """

    texts: tuple[str, ...]
    optional: tuple[str, ...] = ()
    has_options: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of all inputs."""
        return (*self.texts, *self.optional, *(_DTYPES if self.has_options else ()))


_SIGNATURES = {
    "serving_default": _Signature(("texts",)),
    "translate": _Signature(("texts",), has_options=True),
    "score": _Signature(("texts", "targets")),
    "explain": _Signature(("texts",), ("prefixes",), has_options=True),
    "alternatives": _Signature(("texts", "prefixes"), has_options=True),
    "options": _Signature(()),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits. Impossible values raise `UserError` at construction."""

    max_body_bytes: int = option(1 << 20, "maximum bytes of a request body", ge=1)
    max_characters: int = option(5000, "maximum characters in a sentence", ge=1)
    max_phrase_characters: int = option(
        1000, "maximum characters in the phrases of a sentence", ge=0
    )
    max_beam_size: int = option(32, "maximum beam size of a request", ge=1)
    max_work: int = option(
        1_000_000,
        "maximum work of a request: about the bytes of its texts times the beam size",
        ge=1,
    )
    max_batch_work: int = option(
        16_000, "maximum work of a batch of expensive sentences", ge=1
    )
    max_batch_sentences: int = option(64, "maximum sentences in a batch", ge=1)
    max_queue: int = option(
        1024,
        "maximum sentences in a request; while that many wait for a model, requests "
        "are refused",
        ge=1,
    )
    batch_milliseconds: float = option(
        5.0, "how long an idle thread waits for its share of the sentences", ge=0
    )
    timeout_seconds: float = option(
        30.0, "time within which a request is answered", gt=0
    )
    max_values: int = option(
        1 << 17, "maximum values (strings, numbers, lists, objects) in a body", ge=1
    )
    max_connections: int = option(
        1000, "maximum connections; beyond it, requests are refused", ge=1
    )
    max_unfinished_bytes: int = option(
        64 << 20,
        "maximum bytes of request bodies together that are unfinished or not parsed",
        ge=1,
    )

    def __post_init__(self) -> None:
        check_options(Limits, vars(self))


class PredictRequest(NamedTuple):
    """A request to a signature.

    Attributes:
        signature: the name of the signature.
        keys: the signature and the options of each row.
        rows: the texts of each row; one row without texts if the signature has none.
        in_rows: whether the request has the row format (`instances`).
    """

    signature: str
    keys: list[Key]
    rows: list[Texts]
    in_rows: bool

    @classmethod
    def parse(cls, body: object, max_rows: int | None = None) -> "PredictRequest":
        """Checks the body of a request.

        Args:
            body: the parsed JSON.
            max_rows: maximum number of rows; None: no limit.

        Raises:
            UserError: the body has another key, there is no such signature, or it has
                other inputs.
            TooLarge: there are more rows.
        """
        if not isinstance(body, dict) or ("instances" in body) == ("inputs" in body):
            raise UserError("the body must have either 'instances' or 'inputs'")
        _check_keys(body)
        name = _signature_name(body)
        signature = _SIGNATURES[name]
        in_rows = "instances" in body
        if in_rows:
            rows = body["instances"]
            if not isinstance(rows, list) or not rows:
                raise UserError("instances must be a list that is not empty")
            _check_count(rows, max_rows)
        else:
            rows = _rows(body["inputs"], signature.texts, max_rows)
        keys: list[Key] = []
        texts: list[Texts] = []
        # In columns, rows share the values of their options, which are then checked
        # only once. They may be long, so they are compared by identity.
        key_of_options: dict[tuple[int, ...], Key] = {}
        for index, content in enumerate(rows):
            row = _row(name, index, content)
            # In one order, so that rows with equal options have equal keys.
            options = {k: row[k] for k in _DTYPES if k in row}
            identity = tuple(map(id, [*options, *options.values()]))
            if identity not in key_of_options:
                checked = _options(options) if options else {}
                key_of_options[identity] = name, tuple(checked.items())
            keys.append(key_of_options[identity])
            names = (*signature.texts, *signature.optional)
            texts.append({k: _string(f"{k}[{index}]", row[k]) for k in names})
        return cls(name, keys, texts, in_rows)

    def answer(self, outputs: list[Outputs]) -> dict[str, object]:
        """Returns the answer, given the outputs for each row."""
        if self.in_rows:
            return {"predictions": outputs}
        if self.signature == "options":
            return {"outputs": outputs[0]}
        columns = {}
        for name in outputs[0] if outputs else ():
            columns[name] = [row[name] for row in outputs]
        return {"outputs": columns}


def parse_json(body: bytes, max_values: int) -> object:
    """Parses a body after counting its values.

    Args:
        body: the JSON, in UTF-8, UTF-16 or UTF-32.
        max_values: maximum number of values in it.

    Raises:
        UserError: it is not JSON, or an object in it has a key twice.
        TooLarge: it has more values.
    """
    try:
        text = body.decode(json.detect_encoding(body))
        # Strings have few commas and brackets, so most bodies are counted as they are.
        if _max_count(text) > max_values:
            count = _max_count(_STRING.sub("", text))
            if count > max_values:
                raise TooLarge(
                    f"the body has {count:,} values; at most {max_values:,} are allowed"
                )
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the body is not JSON: {error}") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Returns an object of JSON."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        ((name, _),) = counts.most_common(1)
        raise UserError(f"{short_repr(name)} is given twice; leave out one")
    return values


def _max_count(text: str) -> int:
    """Returns the number of values in JSON, or more if its strings have `,[{`.

    Each value, except for the outermost one, follows a comma or opens a list or object.
    """
    return 1 + sum(map(text.count, ",[{"))


def _check_keys(body: dict[str, object]) -> None:
    """Raises `UserError` if a body has a key that means nothing there."""
    options_hint = (
        "; options belong in the rows of instances, or in inputs, with the "
        "signature_name 'translate'"
    )
    for key in body:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or options_hint
            raise UserError(f"{short_repr(key)} is not a key of the body{hint}")


def _signature_name(body: dict[str, object]) -> str:
    """Returns the signature that a body names.

    Raises:
        UserError: there is no such signature.
    """
    signature = body.get("signature_name", "")
    if signature == "":  # as in TensorFlow Serving
        return "serving_default"
    if not isinstance(signature, str) or signature not in _SIGNATURES:
        raise UserError(
            f"signature_name: {signature!r:.80} is not a signature; there are "
            f"{', '.join(_SIGNATURES)}"
        )
    return signature


def _check_count(rows: list[object], max_rows: int | None) -> None:
    """Raises `TooLarge` if there are more rows."""
    if max_rows is not None and len(rows) > max_rows:
        raise TooLarge(
            f"the request has {len(rows):,} sentences; at most {max_rows:,} are allowed"
        )


def _rows(
    inputs: object, names: tuple[str, ...], max_rows: int | None
) -> list[dict[str, object]]:
    """Returns a request in column format as one in row format."""
    if len(names) == 1 and isinstance(inputs, list):
        inputs = {names[0]: inputs}
    if not isinstance(inputs, dict) or not {*names} <= inputs.keys():
        raise UserError(f"inputs must be an object with {', '.join(names)}")
    columns = {k: v if isinstance(v, list) else [v] for k, v in inputs.items()}
    for name in names:
        _check_count(columns[name], max_rows)
    size = max((len(columns.get(name, ())) for name in names), default=1)
    for name, column in columns.items():
        if name not in names and len(column) == 1:
            columns[name] = column * size
        elif len(column) != size:
            raise UserError(f"{name} must have a value for each of the {size} rows")
    rows: list[dict[str, object]] = [{} for _ in range(size)]
    for name, column in columns.items():
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return rows


def _row(name: str, index: int, row: object) -> dict[str, object]:
    """Returns the inputs of a row, with "" for optional texts that it lacks.

    Args:
        name: the name of the signature.
        index: the position of the row.
        row: the row, or the text alone if the signature has one text.

    Raises:
        UserError: the row does not have the inputs of the signature.
    """
    signature = _SIGNATURES[name]
    texts = signature.texts
    inputs = signature.inputs
    if len(texts) == 1 and (not isinstance(row, dict) or "b64" in row):
        row = {texts[0]: row}
    if not isinstance(row, dict) or not {*texts} <= row.keys() <= {*inputs}:
        keys = row if isinstance(row, dict) else ()
        unknown = next((key for key in keys if key not in inputs), None)
        reason = "" if unknown is None else f"there is no input {short_repr(unknown)}; "
        hint = "; 'translate' takes options" * (inputs == texts)
        raise UserError(
            f"row {index}: {reason}'{name}' has the inputs {', '.join(inputs)}{hint}"
        )
    return {**dict.fromkeys(signature.optional, ""), **row}


def _options(values: dict[str, object]) -> Options:
    """Returns the options of a row, checked; empty phrases are padding.

    Raises:
        UserError: a value is impossible.
    """
    options: Options = {}
    phrases: dict[str, Any] = {}
    for name, value in values.items():
        if _DTYPES[name] != "string":
            if isinstance(value, str):  # which `typed` takes, from command lines
                raise UserError(
                    f"{name} must be a number, not the string {value!r:.80}"
                )
            options[name] = parse_value(DecodingOptions, name, value)
        elif isinstance(value, list):
            phrases[name] = [x for x in value if x not in ("", ["", ""])]
        else:
            raise UserError(f"{name} must be a list for each row, or one for all")
    checked = DecodingOptions(**phrases)
    for name in phrases:
        options[name] = getattr(checked, name)
    check_options(DecodingOptions, options)
    return options


def _string(name: str, value: object) -> str:
    """Returns a string, which may be given as `{"b64": ...}`."""
    if isinstance(value, dict) and value.keys() == {"b64"}:
        try:
            value = base64.b64decode(value["b64"], validate=True).decode()
        except (ValueError, TypeError):
            value = None
    if not isinstance(value, str):
        raise UserError(f"{name} must be a string, or UTF-8 in base 64 as b64")
    require_unicode(name, value)
    return value


def cheap_work(default_beam_size: int) -> int:
    """Returns the maximum work of a row that is not expensive."""
    return _CHEAP * default_beam_size


def row_works(
    request: PredictRequest, limits: Limits, default_beam_size: int
) -> list[int]:
    """Returns the work of each row: its length times the beam size.

    The length is that of the source in bytes of UTF-8, which is at least its
    number of tokens, plus a constant, as outputs may be longer than sources, and
    plus those of its phrases, with a weight. The signature `score` searches
    nothing: the lengths of both texts are added. `alternatives` searches once for
    each word.

    Args:
        request: the request.
        limits: the limits.
        default_beam_size: the beam size of rows that have none.

    Raises:
        UserError: the beam size or a length is beyond the limit.
        TooLarge: all rows together are beyond the limit.
    """
    max_beam_size = max(limits.max_beam_size, default_beam_size)
    # Beam size, and characters and work of phrases; most rows have the same options.
    by_key: dict[int, tuple[int, int, int]] = {}
    works = []
    for key, row in zip(request.keys, request.rows, strict=True):
        if id(key) not in by_key:
            options = dict(key[1])
            glossary = itertools.chain(*options.get("glossary", ()))
            phrases = [x for x in (*glossary, *options.get("forbidden", ())) if x]
            beam = options.get("beam_size", default_beam_size)
            num_bytes = sum(len(phrase.encode()) for phrase in phrases)
            phrase_work = num_bytes + _PHRASE_BOUNDARIES * len(phrases)
            by_key[id(key)] = beam, sum(map(len, phrases)), phrase_work
        beam, characters, phrase_work = by_key[id(key)]
        longest = max(map(len, row.values()), default=0)
        if beam > max_beam_size:
            raise UserError(f"beam_size {beam} is more than {max_beam_size}")
        if longest > limits.max_characters:
            raise UserError(
                f"a sentence has more than {limits.max_characters:,} characters"
            )
        if characters > limits.max_phrase_characters:
            raise UserError(
                f"phrases have more than {limits.max_phrase_characters:,} characters"
            )
        size = sum(len(text.encode()) for text in row.values())
        size += _EXTRA_LENGTH + _PHRASE_WEIGHT * phrase_work
        works.append(_searches(request.signature, beam) * size)
    total = sum(works)
    if total > limits.max_work:
        raise TooLarge(
            f"the request has {total:,} bytes times beam size; at most "
            f"{limits.max_work:,} are allowed"
        )
    return works


def _searches(signature: str, beam_size: int) -> int:
    """Returns how many hypotheses are computed for each token of a row."""
    if signature == "score":
        return 1
    return beam_size * (NUM_ALTERNATIVES if signature == "alternatives" else 1)


def is_compressed(encoding: str) -> bool:
    """Returns whether a body must be decompressed.

    Args:
        encoding: the value of `Content-Encoding`; "": there is none.

    Raises:
        UnsupportedEncoding: the server does not read this coding.
    """
    coding = encoding.strip().lower()
    if coding not in _CODINGS:
        raise UnsupportedEncoding(
            f"Content-Encoding {encoding[:80]!r} is not supported; send the body with "
            "gzip, or not compressed"
        )
    return coding in _GZIP


def decompress(body: bytes, max_bytes: int) -> bytes:
    """Returns the content of a body in gzip.

    Args:
        body: the compressed bytes.
        max_bytes: maximum bytes of the content; only one more is decompressed.

    Raises:
        TooLarge: there are more bytes.
        UserError: the body is damaged or incomplete.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            content = file.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"the body is not gzip: {error}") from None
    if len(content) > max_bytes:
        raise TooLarge(f"the decompressed body has more than {max_bytes:,} bytes")
    return content
