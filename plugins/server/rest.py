"""The JSON of TensorFlow Serving's REST interface."""

import base64
from typing import Any, NamedTuple, TypeAlias

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.option import UserError, check, require_unicode, typed

# For each signature, the inputs that are texts.
_TEXTS = {
    "serving_default": ("texts",),
    "translate": ("texts",),
    "score": ("texts", "targets"),
    "options": (),
}
_DTYPES = DecodingOptions.dtypes("is_served")

# The signature and the options, by name: rows with equal keys can be run together.
Key: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]


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
    rows: list[dict[str, str]]
    in_rows: bool

    @classmethod
    def parse(cls, body: Any) -> "Request":
        """Reads the body of a request.

        Raises:
            UserError: there is no such signature, or its inputs are different.
        """
        if not isinstance(body, dict) or ("instances" in body) == ("inputs" in body):
            raise UserError("the body must have either 'instances' or 'inputs'")
        signature = body.get("signature_name") or "serving_default"
        if not isinstance(signature, str) or signature not in _TEXTS:
            raise UserError(
                f"signature_name: {signature!r:.80} is not a signature; there are "
                f"{', '.join(_TEXTS)}"
            )
        names = _TEXTS[signature]
        possible = (*names, *(_DTYPES if signature == "translate" else ()))
        in_rows = "instances" in body
        rows = body["instances"] if in_rows else _rows(body["inputs"], names)
        if not isinstance(rows, list) or (in_rows and not rows):
            raise UserError("instances must be a list that is not empty")
        keys, texts = [], []
        known: dict[tuple[int, ...], Key] = {}  # most rows have the same options
        for number, row in enumerate(rows):
            if len(names) == 1 and (not isinstance(row, dict) or "b64" in row):
                row = {names[0]: row}
            if not isinstance(row, dict) or not {*names} <= row.keys() <= {*possible}:
                hint = "; 'translate' takes options" * (possible == names)
                inputs = f"'{signature}' has the inputs {', '.join(possible)}"
                raise UserError(f"row {number}: {inputs}{hint}")
            given = {name: row[name] for name in possible[len(names) :] if name in row}
            same = tuple(map(id, [*given, *given.values()]))
            if same not in known:
                options = _options(given) if given else {}
                known[same] = signature, tuple(options.items())
            keys.append(known[same])
            texts.append({k: _string(f"{k}[{number}]", row[k]) for k in names})
        return cls(signature, keys, texts, in_rows)

    def answer(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the answer, given the outputs for each row."""
        if self.in_rows:
            return {"predictions": found}
        if self.signature == "options":
            return {"outputs": found[0]}
        return {"outputs": {k: [row[k] for row in found] for k in (found or [{}])[0]}}


def _rows(inputs: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns a request in column format as one in row format."""
    if len(names) == 1 and isinstance(inputs, list):
        inputs = {names[0]: inputs}
    if not isinstance(inputs, dict) or not {*names} <= inputs.keys():
        raise UserError(f"inputs must be an object with {', '.join(names)}")
    columns = {k: v if isinstance(v, list) else [v] for k, v in inputs.items()}
    size = max((len(columns.get(name, ())) for name in names), default=1)
    for name, column in columns.items():
        if name not in names and len(column) == 1:
            columns[name] = column * size
        elif len(column) != size:
            raise UserError(f"{name} must have a value for each of the {size} rows")
    return [{k: column[i] for k, column in columns.items()} for i in range(size)]


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a row; empty phrases are padding.

    Raises:
        UserError: a value is impossible.
    """
    options = {}
    for name, value in given.items():
        if _DTYPES[name] != "string":
            options[name] = typed(DecodingOptions, name, value)
        elif isinstance(value, list):
            options[name] = [x for x in value if x not in ("", ["", ""])]
        else:
            raise UserError(f"{name} must be a list for each row, or one for all")
    check(DecodingOptions, options)
    if phrases := {k: v for k, v in options.items() if _DTYPES[k] == "string"}:
        checked = DecodingOptions(**phrases)
        options |= {name: getattr(checked, name) for name in phrases}
    return options


def _string(name: str, value: Any) -> str:
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
