"""JSON files whose fields are those of a dataclass, with its types."""

import dataclasses
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast

from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.type_hints import Rule, TypeChecker, TypeMismatchError, resolved_hints

T = TypeVar("T")

TWO = Rule(lambda items: len(items) == 2, "a list of 2")
FileName = Annotated[
    str,
    Rule(
        lambda name: Path(name).name == name != "",
        "the name of a file in its directory",
    ),
]


class _JsonTypeChecker(TypeChecker):
    names: ClassVar[dict[object, str]] = TypeChecker.names | {types.NoneType: "null"}

    def convert(self, hint: object, value: object, name: str) -> object:
        converted = super().convert(hint, value, name)
        if isinstance(converted, str) and hint is str and not _is_path(converted):
            expected = "text without U+0000 and lone surrogates"
            raise TypeMismatchError(name, expected, value)
        return converted


_CHECKER = _JsonTypeChecker()


def _is_path(text: str) -> bool:
    """Returns whether the system takes a text as a path."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def from_fields(cls: type[T], fields: Mapping[str, object], path: Path) -> T:
    """Returns the dataclass that the fields of a JSON file stand for.

    Lists become tuples where the dataclass has tuples. A field with a default may be
    absent.

    Args:
        cls: the dataclass.
        fields: the fields by name.
        path: the file, for the messages.

    Raises:
        UserError: a field is missing, unknown or of another type.
    """
    assert dataclasses.is_dataclass(cls)
    hints = resolved_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name in fields:
            hint: Any = hints[field.name]
            values[field.name] = typed_value(hint, fields[field.name], field.name, path)
        elif _is_required(field):
            raise UserError(
                f"{path}: the field '{field.name}' is missing; restore the file from a "
                "copy"
            )
    for name in fields:
        if name not in names:
            raise UserError(
                f"{path}: there is no field '{name}'{did_you_mean(name, names)}; "
                "restore the file from a copy, or use the version of this program "
                "that wrote it"
            )
    return cls(**values)


def _is_required(field: "dataclasses.Field[object]") -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def typed_value(hint: type[T], value: object, name: str, path: Path) -> T:
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
        return cast(T, _CHECKER.convert(hint, value, name))
    except TypeMismatchError as error:
        raise UserError(
            f"{path}: the field '{error.name}' must be {error.expected}, not "
            f"{error.value!r:.80}; restore the file from a copy"
        ) from None
