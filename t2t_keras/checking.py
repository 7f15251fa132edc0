"""Type hints as run-time checks, for arguments, options and the fields of JSON files.

A hint may have limits: `Annotated[int, Limits(ge=1)]`, or another `Rule`. A public
function with the decorator `checked` refuses a wrong type in one sentence.
"""

import collections.abc
import dataclasses
import errno
import functools
import inspect
import math
import numbers
import operator
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
)

from t2t_keras.errors import UserError, short_repr

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# The largest integer for a graph, whose integers have 32 bits; some are doubled there.
LARGEST = 10**9


@dataclasses.dataclass(frozen=True)
class Rule:
    """A condition on values beyond their type, as metadata of a type hint.

    Attributes:
        holds: returns whether a value satisfies it.
        description: completes "x must be ...".
    """

    holds: Callable[[Any], bool]
    description: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a number, as metadata of a type hint.

    Attributes:
        ge: the smallest possible value.
        gt: a number below all possible values.
        le: the largest possible value.
        lt: a number above all possible values.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def conditions(self, value: object) -> list[object]:
        """Returns the comparisons of a number, or of a tensor, with each limit."""
        comparisons: tuple[tuple[Callable[[Any, Any], Any], float | None], ...] = (
            (operator.ge, self.ge),
            (operator.gt, self.gt),
            (operator.le, self.le),
            (operator.lt, self.lt),
        )
        return [
            compare(value, limit) for compare, limit in comparisons if limit is not None
        ]

    def holds(self, value: object) -> bool:
        """Returns whether a number is within the limits."""
        return all(self.conditions(value))

    @property
    def description(self) -> str:
        """Completes "x must be ..."."""
        limits = {
            "at least": self.ge,
            "above": self.gt,
            "at most": self.le,
            "below": self.lt,
        }
        return " and ".join(
            f"{relation} {limit}"
            for relation, limit in limits.items()
            if limit is not None
        )


NonNegative = Annotated[int, Limits(ge=0, le=LARGEST)]


Positive = Annotated[int, Limits(ge=1, le=LARGEST)]


Seed = Annotated[int, Limits(ge=0, le=2**31 - 1)]


Count = Annotated[int, Limits(ge=0)]  # no graph has it, so it may be large


class TypeMismatchError(Exception):
    """A value does not have the type of its hint.

    Attributes:
        name: the name of the value, such as `x` or `x.key[2]`.
        expected: completes "it must be ...".
        value: the value.
    """

    def __init__(self, name: str, expected: str, value: object) -> None:
        super().__init__(f"{name} must be {expected}, not {short_repr(value)}")
        self.name = name
        self.expected = expected
        self.value = value


def is_finite(value: object) -> bool:
    """Returns whether a number is finite as a `float`."""
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # an integer of hundreds of digits
        return False


@functools.cache
def resolved_hints(owner: Callable[..., object]) -> dict[str, object]:
    """Returns the type hints of a function's parameters, or of a class's fields.

    `*args` and `**kwargs` are left out. A hint that is unknown at run time is `Any`.
    """
    if isinstance(owner, type):
        return {
            name: hint
            for cls in reversed(owner.__mro__)
            for name, hint in _own_hints(cls).items()
        }
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(owner).parameters
    return {
        name: hint
        for name, hint in _own_hints(owner).items()
        if name in parameters and parameters[name].kind not in variadic
    }


def _own_hints(owner: Callable[..., object]) -> dict[str, Any]:
    """Returns the hints of a function or class without those of its bases."""
    module_names = vars(sys.modules.get(owner.__module__, typing))
    hints = inspect.get_annotations(owner)
    return {name: _resolved(hint, module_names) for name, hint in hints.items()}


def _resolved(annotation: object, module_names: dict[str, Any]) -> Any:
    """Returns a hint without names in quotes."""
    stub = types.SimpleNamespace(__annotations__={"hint": annotation})
    try:
        return typing.get_type_hints(stub, module_names, include_extras=True)["hint"]
    except NameError:  # it is imported for type checkers only
        return Any


def alternatives(hint: object) -> tuple[object, ...]:
    """Returns the hints of a union, or the hint itself."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _origin(hint: object) -> object:
    """Returns the origin of a hint with arguments; None: it has none.

    An alias of `typing` may lack them, as `typing.List`; `tuple[()]` has none on
    purpose.
    """
    has_arguments = typing.get_args(hint) or hint == tuple[()]
    is_function = typing.get_origin(hint) is collections.abc.Callable
    return typing.get_origin(hint) if has_arguments or is_function else None


def _is_of_fixed_length(origin: object, arguments: tuple[Any, ...]) -> bool:
    """Returns whether a hint is a tuple that has a hint for each item."""
    return origin is tuple and arguments[-1:] != (Ellipsis,)


class TypeChecker:
    """Checks values against type hints. It accepts any value for an unknown hint.

    Iterables are not checked, because that would consume them.
    """

    names: ClassVar[dict[object, str]] = {
        bool: "true or false",
        int: "an integer",
        float: "a finite number",
        str: "text",
        Path: "a path",
        types.NoneType: "None",
    }

    def convert(self, hint: object, value: object, name: str) -> object:
        """Returns a value that has the type of a hint, with lists for tuples converted.

        Args:
            hint: the type hint.
            value: the value.
            name: its name, for the message.

        Raises:
            TypeMismatchError: it has another type, or violates a rule of the hint.
        """
        origin = _origin(hint)
        arguments = typing.get_args(hint)
        if origin is Annotated:
            return self._convert_annotated(arguments, value, name)
        if origin in (Union, types.UnionType):
            return self._convert_union(hint, value, name)
        if origin is Literal:
            equal = [x for x in arguments if type(x) is type(value) and x == value]
            is_valid = bool(equal)
        elif origin is collections.abc.Callable:
            is_valid = callable(value) and _takes(value, *arguments[:1])
        elif isinstance(origin, type):
            return self._convert_generic(hint, value, name)
        elif typing.is_typeddict(hint):
            return self._convert_typed_dict(hint, value, name)
        else:
            is_valid = self.is_instance(hint, value)
        if not is_valid:
            raise TypeMismatchError(name, self.describe(hint), value)
        return value

    def is_instance(self, hint: object, value: object) -> bool:
        """Returns whether a value is an instance of a class; True for other hints."""
        hint = typing.get_origin(hint) or hint  # that of `typing.List` is list
        if hint is None or hint is types.NoneType:
            return value is None
        if hint is int:
            return isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if hint is float:
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            return is_number and is_finite(value)
        if not isinstance(hint, type) or hint in (Any, object):
            return True
        return getattr(hint, "_is_protocol", False) or isinstance(value, hint)

    def _convert_annotated(
        self, arguments: tuple[Any, ...], value: Any, name: str
    ) -> Any:
        rules = [rule for rule in arguments[1:] if isinstance(rule, Rule | Limits)]
        try:
            converted = self.convert(arguments[0], value, name)
        except TypeMismatchError as error:
            if error.name != name:  # only an item of it is wrong
                raise
            descriptions = [rule.description for rule in rules]
            expected = ", ".join([error.expected, *descriptions])
            raise TypeMismatchError(name, expected, value) from None
        for rule in rules:
            if converted is not None and not rule.holds(converted):
                raise TypeMismatchError(name, rule.description, value)
        return converted

    def _convert_union(self, hint: Any, value: Any, name: str) -> Any:
        mismatches = []
        for alternative in typing.get_args(hint):
            try:
                return self.convert(alternative, value, name)
            except TypeMismatchError as error:
                mismatches.append(error)
        for mismatch in mismatches:
            if mismatch.name != name:  # only an item of it is wrong
                raise mismatch
        described = [mismatch.expected for mismatch in mismatches]
        if Path in typing.get_args(hint):  # text is also given for a path
            described = [text for text in described if text != self.names[str]]
        raise TypeMismatchError(name, _either(described), value)

    def _convert_generic(self, hint: Any, value: Any, name: str) -> Any:
        origin = typing.get_origin(hint)
        arguments = typing.get_args(hint)
        if origin is collections.abc.Iterable:
            return value
        if issubclass(origin, Mapping):
            return self._convert_mapping(hint, value, name)
        if not issubclass(origin, collections.abc.Sequence | collections.abc.Set):
            if not isinstance(value, origin):
                raise TypeMismatchError(name, self.describe(hint), value)
            return value
        cls = collections.abc.Sequence if origin is tuple else origin
        if isinstance(value, str | bytes) or not isinstance(value, cls):
            raise TypeMismatchError(name, self.describe(hint), value)
        items = list(value)
        hints = arguments
        if not _is_of_fixed_length(origin, arguments):
            hints = (arguments[0],) * len(items)
        if len(hints) != len(items):
            raise TypeMismatchError(name, self.describe(hint), value)
        converted = []
        for index, (item_hint, item) in enumerate(zip(hints, items, strict=True)):
            converted.append(self.convert(item_hint, item, f"{name}[{index}]"))
        is_same = all(map(operator.is_, items, converted))
        if is_same and (origin is not tuple or isinstance(value, tuple)):
            return value
        if origin is tuple or isinstance(value, tuple):
            return tuple(converted)
        return set(converted) if isinstance(value, collections.abc.Set) else converted

    def _convert_mapping(self, hint: Any, value: Any, name: str) -> Any:
        key_hint, item_hint = typing.get_args(hint)
        if not isinstance(value, typing.get_origin(hint)):
            raise TypeMismatchError(name, self.describe(hint), value)
        converted = {}
        for key, item in value.items():
            try:
                key = self.convert(key_hint, key, name)
            except TypeMismatchError:
                raise TypeMismatchError(name, self.describe(hint), value) from None
            converted[key] = self.convert(item_hint, item, f"{name}.{key}")
        return converted

    def _convert_typed_dict(self, hint: Any, value: Any, name: str) -> Any:
        hints = typing.get_type_hints(hint, include_extras=True)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise TypeMismatchError(name, f"an object with {', '.join(hints)}", value)
        return {
            key: self.convert(item_hint, value[key], f"{name}.{key}")
            for key, item_hint in hints.items()
        }

    def describe(self, hint: object) -> str:
        """Returns what a hint allows, in words."""
        origin = _origin(hint)
        arguments = typing.get_args(hint)
        if hint in self.names:
            return self.names[hint]
        if origin in (Union, types.UnionType):
            return _either(list(map(self.describe, arguments)))
        if origin is Annotated:
            rules = [rule for rule in arguments[1:] if isinstance(rule, Rule | Limits)]
            rule_texts = [rule.description for rule in rules]
            return ", ".join([self.describe(arguments[0]), *rule_texts])
        if origin is Literal:
            return f"one of {', '.join(map(str, arguments))}"
        if origin is collections.abc.Callable:
            return _describe_function(arguments)
        if isinstance(origin, type):
            return self._describe_generic(origin, arguments)
        if hint in (Any, object):
            return "anything"
        hint = typing.get_origin(hint) or hint
        return getattr(hint, "__name__", str(hint))

    def _describe_generic(self, origin: type, arguments: tuple[Any, ...]) -> str:
        described = list(map(self.describe, arguments))
        if issubclass(origin, Mapping):
            return f"a mapping of {' to '.join(described)}"
        if _is_of_fixed_length(origin, arguments):
            return f"({', '.join(described)})"
        if issubclass(origin, collections.abc.Sequence | collections.abc.Set):
            return f"a list, each item of which is {described[0]}"
        return origin.__name__


def _either(described: list[str]) -> str:
    """Returns "a, b or c" without repetitions."""
    *head, tail = dict.fromkeys(described)
    return f"{', '.join(head)} or {tail}" if head else tail


def _takes(function: Callable[..., object], arguments: object = ...) -> bool:
    """Returns whether a function can be called with as many arguments as a list has."""
    if not isinstance(arguments, list):  # `...`
        return True
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a function in C may have no signature
        return True
    return True


def _describe_function(arguments: tuple[Any, ...]) -> str:
    if not arguments or not isinstance(arguments[0], list):
        return "a function"
    counts = {0: "without arguments", 1: "of one argument"}
    count = len(arguments[0])
    return f"a function {counts.get(count, f'of {count} arguments')}"


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
