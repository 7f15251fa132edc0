"""Arguments of public functions: one of another type is refused in one sentence.

The type hints say what is allowed. `checked` compares the arguments of a function with
them, and `check_fields` the fields of a dataclass.
"""

import collections.abc
import dataclasses
import errno
import functools
import inspect
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union

from t2t_keras.errors import UserError, short_repr
from t2t_keras.options import is_finite

P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a number, as metadata of a type hint."""

    ge: int
    le: int = 10**9  # graphs have integers of 32 bits


NonNegative = Annotated[int, Limits(0)]
Positive = Annotated[int, Limits(1)]
Seed = Annotated[int, Limits(0, 2**31 - 1)]


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Returns the function, made to refuse arguments that are not of their types.

    A decorator. It does not check `**options`, iterables, and hints that are not known
    at run time.

    Raises:
        UserError: by the function that is returned, for an argument of another type.
    """
    signature = inspect.signature(function)
    defaults = {it.name: it.default for it in signature.parameters.values()}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # Python's own error says what is missing, or too much
            arguments = {}
        hints = _hints(function)
        for name, value in arguments.items():
            if name in hints and value is not defaults[name]:
                require_type(name, hints[name], value)
        return function(*args, **kwargs)

    return call


def check_fields(values: Any, prefix: str = "") -> None:
    """Checks the types of a dataclass's fields.

    Args:
        values: the object.
        prefix: begins the message.

    Raises:
        UserError: a field has a value of another type.
    """
    hints = _hints(values.__class__)
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if field.name in hints and value is not field.default:
            require_type(f"{prefix}{field.name}", hints[field.name], value)


def require_type(name: str, hint: Any, value: Any) -> None:
    """Refuses a value that does not have the type of a hint.

    Args:
        name: the name of the argument or field, for the message.
        hint: the type hint.
        value: the value.

    Raises:
        UserError: it has another type, is outside of the hint's limits, or is a path
            that no file can have.
    """
    if not _matches(hint, value):
        raise UserError(f"{name} must be {_described(hint)}, not {short_repr(value)}")
    if isinstance(value, str | Path) and Path in _alternatives(hint):
        require_possible_path(name, value)


@functools.cache
def _hints(owner: Callable[..., Any]) -> dict[str, Any]:
    """Returns the type hints of a function's parameters, or of a class's fields."""
    owners = owner.__mro__[::-1] if isinstance(owner, type) else (owner,)
    hints: dict[str, Any] = {}
    for each in owners:
        names = vars(sys.modules.get(each.__module__, typing))
        for name, annotation in inspect.get_annotations(each).items():
            hints[name] = _resolved(annotation, names)
    if not isinstance(owner, type):
        # `**options: Any` is the type of each option.
        parameters = inspect.signature(owner).parameters.values()
        several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        single = {it.name for it in parameters if it.kind not in several}
        hints = {name: hint for name, hint in hints.items() if name in single}
    return hints


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """Returns a hint without names in quotes; Any if one is not known at run time."""
    stub = types.SimpleNamespace(__annotations__={"hint": annotation})
    try:
        return typing.get_type_hints(stub, names, include_extras=True)["hint"]
    except NameError:  # it is imported for type checkers only
        return Any


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """Returns the hints of a union, or the hint itself."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _matches(hint: Any, value: Any) -> bool:
    """Returns whether a value has the type of a hint; True if the hint is unknown."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_matches(part, value) for part in parts)
    if origin is Annotated:
        limits = [part for part in parts[1:] if isinstance(part, Limits)]
        return _matches(parts[0], value) and all(
            limit.ge <= value <= limit.le for limit in limits
        )
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is not None:
        return _matches_generic(origin, parts, value)
    return _matches_class(hint, value)


def _matches_class(hint: Any, value: Any) -> bool:
    """Returns whether a value is an instance of a class; True for other hints."""
    if hint is None or hint is types.NoneType:
        return value is None
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is float:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return is_number and is_finite(value)
    if not isinstance(hint, type) or hint in (Any, object):
        return True
    if getattr(hint, "_is_protocol", False):
        return True
    return isinstance(value, hint)


def _matches_generic(origin: Any, parts: tuple[Any, ...], value: Any) -> bool:
    """Returns whether a value is a list, mapping or function as the hint has it."""
    if origin is collections.abc.Callable:
        return callable(value) and (not parts or _takes(value, parts[0]))
    if not isinstance(origin, type) or origin is collections.abc.Iterable:
        return True  # an iterable is checked by the function that consumes it
    if issubclass(origin, collections.abc.Mapping):
        return isinstance(value, origin) and all(
            _matches(parts[0], key) and _matches(parts[1], item)
            for key, item in value.items()
        )
    if origin is tuple and (len(parts) < 2 or parts[-1] is not Ellipsis):
        is_row = isinstance(value, tuple | list) and len(value) == len(parts)
        return is_row and all(map(_matches, parts, value))
    if issubclass(origin, collections.abc.Sequence | collections.abc.Set):
        if origin is tuple:
            origin = collections.abc.Sequence
        is_list = isinstance(value, origin) and not isinstance(value, str | bytes)
        return is_list and all(_matches(parts[0], item) for item in value)
    return isinstance(value, origin)


def _takes(function: Callable[..., Any], arguments: Any) -> bool:
    """Returns whether a function can be called with so many arguments."""
    if not isinstance(arguments, list):  # `...`
        return True
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # one in C that does not tell
        return True
    return True


_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a finite number",
    str: "text",
    Path: "a path",
    types.NoneType: "None",
}


def _described(hint: Any) -> str:
    """Returns what a hint allows, in words."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in _KINDS:
        return _KINDS[hint]
    if origin in (Union, types.UnionType):
        if Path in parts:  # which may be given as text
            parts = tuple(part for part in parts if part is not str)
        *others, last = dict.fromkeys(map(_described, parts))
        return f"{', '.join(others)} or {last}" if others else last
    if origin is Annotated:
        limits = [part for part in parts[1:] if isinstance(part, Limits)]
        range_ = "".join(f" from {it.ge} to {it.le}" for it in limits)
        return f"{_described(parts[0])}{range_}"
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin is collections.abc.Callable:
        return _described_function(parts)
    if isinstance(origin, type):
        return _described_generic(origin, parts)
    return "anything" if hint is Any else getattr(hint, "__name__", str(hint))


def _described_function(parts: tuple[Any, ...]) -> str:
    """Returns how a function has to be called, in words."""
    if not parts or not isinstance(parts[0], list):
        return "a function"
    counts = {0: "without arguments", 1: "of one argument"}
    return f"a function {counts.get(len(parts[0]), f'of {len(parts[0])} arguments')}"


def _described_generic(origin: type, parts: tuple[Any, ...]) -> str:
    """Returns what a list or mapping has to contain, in words."""
    if issubclass(origin, collections.abc.Mapping):
        return f"a mapping of {' to '.join(map(_described, parts))}"
    if origin is tuple and parts[-1:] != (Ellipsis,):
        return f"({', '.join(map(_described, parts))})"
    if issubclass(origin, collections.abc.Sequence | collections.abc.Set):
        return f"a list, each item of which is {_described(parts[0])}"
    return origin.__name__


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
