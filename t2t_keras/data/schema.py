"""The types of the fields in JSON files, which are those of a dataclass.

A field may have a `Rule` besides its type:

    seed: Annotated[int, Rule(lambda seed: seed >= 0, "at least 0")]
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from t2t_keras.errors import UserError, did_you_mean

T = TypeVar("T")

_NAMES: dict[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


@dataclasses.dataclass(frozen=True)
class Rule:
    """What holds for a value besides its type.

    Attributes:
        holds: returns whether it does.
        meaning: completes "the field has to be ...".
    """

    holds: Callable[[Any], bool]
    meaning: str


COUNT = Rule(lambda number: number >= 0, "at least 0")
POSITIVE = Rule(lambda number: number > 0, "above 0")
TWO = Rule(lambda items: len(items) == 2, "two of them")
FILE_NAME = Rule(
    lambda name: Path(name).name == name != "", "the name of a file in its directory"
)
FileName = Annotated[str, FILE_NAME]


class _WrongValueError(Exception):
    """A value is not as its field demands: the field, what it has to be, the value."""


def from_fields(kind: type[T], fields: Mapping[str, Any], path: Path) -> T:
    """Returns the dataclass that the fields of a JSON file stand for.

    Lists become tuples where the dataclass has tuples. A field with a default may be
    absent.

    Args:
        kind: the dataclass.
        fields: the fields by name.
        path: the file, for the messages.

    Raises:
        UserError: a field is missing, unknown or of another type.
    """
    assert dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in fields:
            values[field.name] = typed_value(
                hints[field.name], fields[field.name], field.name, path
            )
        elif _is_required(field):
            raise UserError(
                f"{path}: the field '{field.name}' is missing; restore the file from a "
                "copy"
            )
    for name in fields:
        if name not in hints:
            raise UserError(
                f"{path}: there is no field '{name}'{did_you_mean(name, hints)}; "
                "restore the file from a copy, or use the version of this program "
                "that wrote it"
            )
    return kind(**values)


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def typed_value(hint: Any, value: Any, name: str, path: Path) -> Any:
    """Returns a value of a JSON file, which must have the type of its field.

    Args:
        hint: the type.
        value: the value.
        name: the name of the field.
        path: the file, for the message.

    Raises:
        UserError: the value has another type.
    """
    try:
        return _value(hint, value, name)
    except _WrongValueError as error:
        place, meaning, wrong = error.args
        raise UserError(
            f"{path}: the field '{place}' has to be {meaning}, not {wrong!r:.80}; "
            "restore the file from a copy"
        ) from None


def _value(hint: Any, value: Any, name: str) -> Any:
    """Returns the value in the type that a hint says.

    Raises:
        _WrongValueError: it has another one.
    """
    if hint is Any:
        return value
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is Annotated:
        inner, rule = arguments
        converted = _value(inner, value, name)
        if not rule.holds(converted):
            raise _WrongValueError(name, rule.meaning, value)
        return converted
    if origin in (typing.Union, types.UnionType):
        return _one_of(arguments, value, name)
    if origin is Literal:
        if value not in arguments:
            choice = ", ".join(map(repr, arguments))
            raise _WrongValueError(name, f"one of {choice}", value)
        return value
    if origin is dict:
        return _object(arguments, value, name)
    if origin in (list, tuple):
        return _sequence(origin, arguments, value, name)
    if typing.is_typeddict(hint):
        return _typed_dict(hint, value, name)
    return _scalar(hint, value, name)


def _one_of(hints: tuple[Any, ...], value: Any, name: str) -> Any:
    meanings = []
    for hint in hints:
        try:
            return _value(hint, value, name)
        except _WrongValueError as error:
            if error.args[0] != name:  # of a list or an object, an item is wrong
                raise
            meanings.append(error.args[1])
    raise _WrongValueError(name, " or ".join(meanings), value)


def _scalar(hint: Any, value: Any, name: str) -> Any:
    kinds = (int, float) if hint is float else (hint,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
        raise _WrongValueError(name, _NAMES[hint], value)
    if isinstance(value, str) and not _is_text(value):
        raise _WrongValueError(name, "a text without U+0000 and surrogates", value)
    return value


def _is_text(value: str) -> bool:
    """Returns whether the system takes a text as a path."""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _object(hints: tuple[Any, ...], value: Any, name: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _WrongValueError(name, _NAMES[dict], value)
    return {
        _value(hints[0], key, name): _value(hints[1], content, f"{name}.{key}")
        for key, content in value.items()
    }


def _sequence(origin: Any, hints: tuple[Any, ...], value: Any, name: str) -> Any:
    if not isinstance(value, list | tuple):
        raise _WrongValueError(name, _NAMES[list], value)
    if origin is list or hints[-1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise _WrongValueError(name, f"a list of {len(hints)}", value)
    pairs = enumerate(zip(hints, value, strict=True))
    return origin(_value(hint, item, f"{name}[{i}]") for i, (hint, item) in pairs)


def _typed_dict(hint: Any, value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise _WrongValueError(name, _NAMES[dict], value)
    hints = typing.get_type_hints(hint, include_extras=True)
    if value.keys() != hints.keys():
        names = ", ".join(hints)
        raise _WrongValueError(name, f"an object with {names}", value)
    return {key: _value(hints[key], value[key], f"{name}.{key}") for key in hints}
