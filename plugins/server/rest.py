"""The JSON of TensorFlow Serving's REST interface."""

import base64
import collections
import json
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError, did_you_mean, require_unicode, short_repr
from t2t_keras.options import check_options, parse_value

from .rows import Key, Options, Outputs, Texts

# For each signature, the inputs that are texts.
_TEXTS = {
    "serving_default": ("texts",),
    "translate": ("texts",),
    "score": ("texts", "targets"),
    "explain": ("texts",),
    "alternatives": ("texts", "prefixes"),
    "options": (),
}
# Further texts that a signature may have; "" where they are left out.
_OPTIONAL_TEXTS = {"explain": ("prefixes",)}
_WITH_OPTIONS = ("translate", "explain", "alternatives")
_DTYPES = DecodingOptions.dtypes("is_served")
# The keys of a body.
_KEYS = ("signature_name", "instances", "inputs")


class TooLarge(Exception):
    """A request exceeds a limit of size."""


class Request(NamedTuple):
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
    def parse(cls, body: object, max_rows: int | None = None) -> "Request":
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
        signature = _signature(body)
        names = _TEXTS[signature]
        optional = _OPTIONAL_TEXTS.get(signature, ())
        option_names = _DTYPES if signature in _WITH_OPTIONS else ()
        inputs = (*names, *optional, *option_names)
        in_rows = "instances" in body
        if in_rows:
            rows = body["instances"]
            if not isinstance(rows, list) or not rows:
                raise UserError("instances must be a list that is not empty")
            _check_count(rows, max_rows)
        else:
            rows = _rows(body["inputs"], names, max_rows)
        keys: list[Key] = []
        texts: list[Texts] = []
        # Most rows have the same options, whose key is made only once.
        key_of_options: dict[tuple[int, ...], Key] = {}
        for index, row in enumerate(rows):
            if len(names) == 1 and (not isinstance(row, dict) or "b64" in row):
                row = {names[0]: row}
            if not isinstance(row, dict) or not {*names} <= row.keys() <= {*inputs}:
                hint = "; 'translate' takes options" * (inputs == names)
                raise UserError(
                    f"row {index}: {_unknown(row, inputs)}'{signature}' has the inputs "
                    f"{', '.join(inputs)}{hint}"
                )
            options = {k: row[k] for k in option_names if k in row}
            identity = tuple(map(id, [*options, *options.values()]))
            if identity not in key_of_options:
                checked = _options(options) if options else {}
                key_of_options[identity] = signature, tuple(checked.items())
            keys.append(key_of_options[identity])
            row_texts = {k: _string(f"{k}[{index}]", row[k]) for k in names}
            for name in optional:
                row_texts[name] = _string(f"{name}[{index}]", row.get(name, ""))
            texts.append(row_texts)
        return cls(signature, keys, texts, in_rows)

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
        if _max_count(text) > max_values:
            count = _max_count(_without_strings(text))
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


def _without_strings(text: str) -> str:
    """Returns JSON without the contents of its strings."""
    data = np.frombuffer(text.encode(errors="replace"), np.uint8)
    is_quote = data == ord('"')
    # A quote is part of a string if an odd number of backslashes precedes it.
    unescaped = np.flatnonzero(data != ord("\\"))
    backslashes = np.diff(unescaped, prepend=-1) - 1
    is_quote[unescaped[backslashes % 2 == 1]] = False
    is_outside = np.cumsum(is_quote, dtype=np.uint8) % 2 == 0
    return data[is_outside].tobytes().decode(errors="replace")


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


def _signature(body: dict[str, object]) -> str:
    """Returns the signature that a body names.

    Raises:
        UserError: there is no such signature.
    """
    signature = body.get("signature_name", "")
    if signature == "":  # as in TensorFlow Serving
        return "serving_default"
    if not isinstance(signature, str) or signature not in _TEXTS:
        raise UserError(
            f"signature_name: {signature!r:.80} is not a signature; there are "
            f"{', '.join(_TEXTS)}"
        )
    return signature


def _unknown(row: object, inputs: Collection[str]) -> str:
    """Returns the beginning of a message: which entry of a row is not an input."""
    for name in row if isinstance(row, dict) else ():
        if name not in inputs:
            return f"there is no input {short_repr(name)}; "
    return ""


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
