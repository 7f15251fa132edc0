"""The JSON of TensorFlow Serving's REST interface."""

import base64
from typing import Any, NamedTuple

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.option import UserError, check, typed

# For each signature, the inputs that have one element for each row.
_ROWS = {
    "serving_default": ("texts",),
    "translate": ("texts",),
    "score": ("texts", "targets"),
    "options": (),
}


class Request(NamedTuple):
    """A request to a signature.

    Attributes:
        signature: the name of the signature.
        rows: the inputs of each row; one row without inputs if the signature has none.
        options: the decoding options.
        in_rows: whether the request has the row format (`instances`).
    """

    signature: str
    rows: list[dict[str, str]]
    options: dict[str, Any]
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
        if not isinstance(signature, str) or signature not in _ROWS:
            raise UserError(
                f"signature_name: {signature!r:.80} is not a signature; there are "
                f"{', '.join(_ROWS)}"
            )
        names = _ROWS[signature]
        kinds = DecodingOptions.names("is_served") if signature == "translate" else ()
        inputs = body.get("inputs")
        if "instances" in body:
            inputs = _columns(body["instances"], names) if not kinds else None
        elif len(names) == 1 and isinstance(inputs, list):
            inputs = {names[0]: inputs}
        if not isinstance(inputs, dict) or not (
            {*names} <= inputs.keys() <= {*names, *kinds}
        ):
            raise UserError(
                f"inputs: '{signature}' has the inputs {', '.join([*names, *kinds])}"
            )
        columns = {name: _strings(name, inputs[name]) for name in names}
        if len({len(column) for column in columns.values()}) > 1:
            raise UserError(f"inputs: {', '.join(names)} must be of equal length")
        given = {name: inputs[name] for name in kinds if name in inputs}
        options = {k: typed(DecodingOptions, k, v) for k, v in given.items()}
        check(DecodingOptions, options)
        values = zip(*columns.values(), strict=True)
        rows = [dict(zip(names, row, strict=True)) for row in values]
        return cls(signature, rows if names else [{}], options, "instances" in body)

    def answer(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the answer, given the outputs for each row."""
        if self.in_rows:
            return {"predictions": found}
        if self.signature == "options":
            return {"outputs": found[0]}
        return {"outputs": {k: [row[k] for row in found] for k in (found or [{}])[0]}}


def _columns(instances: Any, names: tuple[str, ...]) -> Any:
    """Returns a request in row format as one in column format."""
    if not isinstance(instances, list) or not instances:
        raise UserError("instances must be a list that is not empty")
    is_row = [isinstance(x, dict) and "b64" not in x for x in instances]
    if len(names) == 1:
        pairs = zip(instances, is_row, strict=True)
        instances = [x if is_row else {names[0]: x} for x, is_row in pairs]
    elif not all(is_row):
        raise UserError(f"instances must be objects with {', '.join(names) or 'none'}")
    if any(row.keys() != {*names} for row in instances):
        raise UserError(f"instances must have the inputs {', '.join(names)}")
    return {name: [row[name] for row in instances] for name in names}


def _strings(name: str, values: Any) -> list[str]:
    """Returns a list of strings, each of which may be given as `{"b64": ...}`."""
    if not isinstance(values, list):
        raise UserError(f"{name} must be a list")
    texts = []
    for number, value in enumerate(values):
        if isinstance(value, dict) and value.keys() == {"b64"}:
            try:
                value = base64.b64decode(value["b64"], validate=True).decode()
            except (ValueError, TypeError):
                value = None
        if not isinstance(value, str):
            raise UserError(
                f"{name}[{number}] must be a string, or UTF-8 in base 64 as b64"
            )
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise UserError(f"{name}[{number}] has half of a surrogate pair")
        texts.append(value)
    return texts
