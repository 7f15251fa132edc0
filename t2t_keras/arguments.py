"""Arguments of public functions: a wrong type is refused in one sentence."""

import dataclasses
import errno
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from t2t_keras.errors import UserError, short_repr
from t2t_keras.type_hints import (
    TypeChecker,
    TypeMismatchError,
    alternatives,
    resolved_hints,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
T = TypeVar("T")

_CHECKER = TypeChecker()


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Makes a function refuse arguments that do not match its type hints; a decorator.

    It does not check `**options`, iterables, and hints that are unknown at run time.

    Raises:
        UserError: by the function that is returned, for an argument of another type.
    """
    signature = inspect.signature(function)
    defaults = {
        parameter.name: parameter.default for parameter in signature.parameters.values()
    }

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # Python's own error says what is missing, or too much
            arguments = {}
        hints = resolved_hints(function)
        for name, value in arguments.items():
            if name in hints and value is not defaults[name]:
                require_type(name, hints[name], value)
        return function(*args, **kwargs)

    return call


def check_fields(values: "DataclassInstance", prefix: str = "") -> None:
    """Checks the types of a dataclass's fields.

    Args:
        values: the object.
        prefix: begins the message.

    Raises:
        UserError: a field has a value of another type.
    """
    hints = resolved_hints(values.__class__)
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if field.name in hints and value is not field.default:
            require_type(f"{prefix}{field.name}", hints[field.name], value)


def require_type(name: str, hint: object, value: object) -> None:
    """Refuses a value that does not have the type of a hint.

    Args:
        name: the name of the argument or field, for the message.
        hint: the type hint.
        value: the value.

    Raises:
        UserError: it has another type, is outside of the hint's limits, or is a path
            that no file can have.
    """
    try:
        _CHECKER.convert(hint, value, name)
    except TypeMismatchError as error:
        raise UserError(str(error)) from None
    if isinstance(value, str | Path) and Path in alternatives(hint):
        require_possible_path(name, value)


def require_possible_path(name: str, path: str | Path) -> None:
    """Refuses a path that no file can have.

    Raises:
        UserError: it is too long, or has a character that file names cannot have.
    """
    try:
        os.stat(path)
    except (UnicodeEncodeError, ValueError) as error:
        reason = "a lone surrogate" if isinstance(error, UnicodeError) else "a NUL"
        raise UserError(
            f"{name}: {short_repr(str(path))} has {reason}, which no file name has"
        ) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UserError(f"{name}: {short_repr(str(path))} is too long") from None
