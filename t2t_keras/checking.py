"""Type hints as run-time checks, for arguments, options and the fields of JSON files.

pydantic checks the values. The message about a refused value comes from the hint, which
may have limits, `Annotated[int, Interval(ge=1)]`, or another `Rule`. A public function
with the decorator `checked` refuses wrong types. The first check imports pydantic,
because that takes a tenth of a second.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
)

from annotated_types import Interval
from typing_extensions import TypedDict, is_protocol  # pydantic and Python 3.11 need it

from t2t_keras.errors import UserError, short_repr

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter

P = ParamSpec("P")
T = TypeVar("T")

# The largest integer for a graph, whose integers have 32 bits; some are doubled there.
LARGEST = 10**9

NonNegative = Annotated[int, Interval(ge=0, le=LARGEST)]
Positive = Annotated[int, Interval(ge=1, le=LARGEST)]
Seed = Annotated[int, Interval(ge=0, le=2**31 - 1)]
Count = Annotated[int, Interval(ge=0)]  # no graph has it, so it may be large


@dataclasses.dataclass(frozen=True)
class Rule:
    """A condition on values beyond their type, as metadata of a type hint.

    Attributes:
        holds: returns whether a value satisfies it.
        description: completes "x must be ..."; "": the description of the type does.
    """

    holds: Callable[[Any], bool]
    description: str = ""


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


_RELATIONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "ge": ("at least", operator.ge),
    "gt": ("above", operator.gt),
    "le": ("at most", operator.le),
    "lt": ("below", operator.lt),
}


def conditions(limits: Interval, value: Any) -> list[Any]:
    """Returns the comparisons of a number, or of a tensor, with each limit."""
    return [
        compare(value, getattr(limits, name))
        for name, (_, compare) in _RELATIONS.items()
        if getattr(limits, name) is not None
    ]


def describe_limits(limits: Interval) -> str:
    """Returns limits in words that complete "x must be ..."."""
    return " and ".join(
        f"{words} {getattr(limits, name)}"
        for name, (words, _) in _RELATIONS.items()
        if getattr(limits, name) is not None
    )


@functools.cache
def resolved_hints(owner: Callable[..., object]) -> dict[str, object]:
    """Returns the type hints of a function, or of a class's fields.

    A hint that is unknown at run time is `Any`.
    """
    hints: dict[str, object] = {}
    for part in reversed(owner.__mro__) if isinstance(owner, type) else [owner]:
        module_names = vars(sys.modules.get(part.__module__, typing))
        for name, hint in inspect.get_annotations(part).items():
            stub = types.SimpleNamespace(__annotations__={name: hint})
            try:
                hints |= typing.get_type_hints(stub, module_names, include_extras=True)
            except NameError:  # it is imported for type checkers only
                hints[name] = Any
    return hints


def alternatives(hint: object) -> tuple[object, ...]:
    """Returns the hints of a union, or the hint itself."""
    is_union = typing.get_origin(hint) in (Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


# A hint as pydantic checks it, and what it allows, to complete "x must be ...".
_Check: TypeAlias = tuple[Any, str]
_WORDS: dict[object, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a finite number",
    str: "text",
    Path: "a path",
}


def _check(hint: Any, text_rule: Rule | None) -> _Check:
    """Returns the check of a hint.

    Only lists are converted, to tuples, and NumPy's scalars, to numbers. The fields of
    objects and the items of iterables are not checked.
    """
    from pydantic import AllowInfNan, BeforeValidator, ConfigDict, Strict, with_config

    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint in (None, types.NoneType):
        return None, "None"
    if origin is Annotated:
        inner, words = _check(arguments[0], text_rule)
        rules = list(map(_as_rule, arguments[1:]))
        words = ", ".join(
            [words, *(x.description for x in rules if isinstance(x, Rule))]
        )
        return _saying(words, inner, *map(_after, rules))
    if len(alternatives(hint)) > 1:
        return _check_union([_check(x, text_rule) for x in arguments])
    if origin is Literal:
        return _saying(f"one of {', '.join(map(str, arguments))}", hint)
    if origin is collections.abc.Callable:
        return _check_function(*arguments[:1])
    if typing.is_typeddict(hint):
        fields = {k: _check(x, text_rule)[0] for k, x in resolved_hints(hint).items()}
        config = ConfigDict(strict=True, extra="forbid")
        strict = with_config(config)(TypedDict("TypedDict", fields))  # type: ignore
        return _saying(f"an object with {', '.join(fields)}", strict)
    if isinstance(origin, type) and (arguments or hint == tuple[()]):
        items = [_check(x, text_rule) for x in arguments if x is not ...]
        return _check_generic(origin, items, is_fixed=arguments[-1:] != (...,))
    if hint in (bool, int, float, str):
        metadata: list[object] = [Strict(), BeforeValidator(_without_numpy)]
        if hint is float:
            metadata.append(AllowInfNan(False))
        if hint is str and text_rule:
            metadata.append(_after(text_rule))
        return _saying(_WORDS[hint], hint, *metadata)
    cls = origin or hint
    if cls in (Any, object) or not isinstance(cls, type) or is_protocol(cls):
        return Any, "anything"
    return _check_instance(cls, _WORDS.get(cls, cls.__name__))


def _as_rule(metadata: object) -> object:
    """Returns limits as a rule, and other metadata unchanged."""
    if not isinstance(metadata, Interval):
        return metadata
    limits = metadata
    return Rule(lambda x: all(conditions(limits, x)), describe_limits(limits))


def _check_union(checks: list[_Check]) -> _Check:
    hints = tuple(hint for hint, _ in checks)
    described = dict.fromkeys(words for _, words in checks)
    if _WORDS[Path] in described:  # text is also given for a path
        described.pop(_WORDS[str], None)
    *head, tail = described
    words = f"{', '.join(head)} or {tail}" if head else tail
    is_optional = len(hints) == 2 and None in hints
    union = Union[hints]  # type: ignore[valid-type]  # noqa: UP007
    return _saying(words, union, suffix=" or None", is_union=not is_optional)


def _check_generic(origin: type, items: list[_Check], is_fixed: bool) -> _Check:
    """Returns the check of a generic class, such as `dict[str, int]`."""
    from pydantic import BeforeValidator, Strict

    hints = tuple(hint for hint, _ in items)
    described = [words for _, words in items]
    words = f"a list, each item of which is {''.join(described[:1])}"
    cls = accepted = origin
    if issubclass(origin, Mapping):
        cls = dict
        words = f"a mapping of {' to '.join(described)}"
    elif origin is tuple:
        accepted = Sequence
        hints = hints if is_fixed else (*hints, ...)
        words = f"({', '.join(described)})" if is_fixed else words
    elif issubclass(origin, Sequence):
        cls = list
    elif origin is collections.abc.Iterable:
        return Any, words  # who reads it says what is wrong with it
    else:
        return _check_instance(origin, origin.__name__)

    def copied(value: Any) -> Any:
        is_accepted = isinstance(value, accepted) and not isinstance(value, str | bytes)
        return cls(value) if is_accepted else value

    generic = types.GenericAlias(cls, hints)
    return _saying(words, generic, Strict(), BeforeValidator(copied))


def _check_function(parameters: object = ...) -> _Check:
    """Returns the check of a function that can be called with so many arguments."""
    if not isinstance(parameters, list):  # `Callable[..., int]`
        return _saying("a function", Any, _after(Rule(callable)))
    hints = parameters

    def holds(function: Any) -> bool:
        try:
            return callable(function) and bool(inspect.signature(function).bind(*hints))
        except TypeError:
            return False
        except ValueError:  # a function in C may have no signature
            return True

    counts = {0: "without arguments", 1: "of one argument"}
    words = counts.get(len(hints), f"of {len(hints)} arguments")
    return _saying(f"a function {words}", Any, _after(Rule(holds)))


def _check_instance(cls: type, words: str) -> _Check:
    return _saying(words, Any, _after(Rule(lambda x: isinstance(x, cls))))


def _without_numpy(value: Any) -> Any:
    """Returns a scalar of NumPy as a number of Python, any other value unchanged."""
    is_scalar = isinstance(value, numbers.Number) and hasattr(value, "item")
    return value.item() if is_scalar else value


def _after(rule: object) -> object:
    """Returns the metadata for pydantic that check a rule; others are its own."""
    from pydantic import AfterValidator
    from pydantic_core import PydanticCustomError

    if not isinstance(rule, Rule):
        return rule

    def require(value: object) -> object:
        if not rule.holds(value):
            error_type = "rule" if rule.description else "type"
            raise PydanticCustomError(
                error_type, "{words}", {"words": rule.description}
            )
        return value

    return AfterValidator(require)


def _saying(
    words: str, hint: Any, *metadata: object, suffix: str = "", is_union: bool = False
) -> _Check:
    """Returns the check whose error says what a value, or an item of it, must be.

    Args:
        words: what the hint allows.
        hint: the hint for pydantic.
        *metadata: the metadata of the hint.
        suffix: what to say after the description of a rule that does not hold.
        is_union: whether `words` are also said about items, whose places pydantic
            names after alternatives.
    """
    from pydantic import ValidationError, WrapValidator
    from pydantic_core import PydanticCustomError

    def validate(value: object, handler: Callable[[object], object]) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            details = error.errors(include_url=False)[0]
            location = details["loc"]
            error_type = details["type"]
            is_of_item = error_type in ("said", "rule") and location[-1:] != ("[key]",)
            if location and is_of_item and not is_union:
                raise
        if error_type == "rule" and not location:
            context = {"words": details["msg"] + suffix}
            raise PydanticCustomError("rule", "{words}", context)
        raise PydanticCustomError("said", "{words}", {"words": words})

    return Annotated[hint, *metadata, WrapValidator(validate)], words


@functools.cache
def _adapter(hint: object, text_rule: Rule | None) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(_check(hint, text_rule)[0])


def _is_plain(hint: object, value: Any) -> bool:
    """Returns whether a value has the type of a simple hint, within its limits."""
    limits: list[object] = []
    if typing.get_origin(hint) is Annotated:
        hint, *limits = typing.get_args(hint)
    if type(value) is not hint or hint not in (bool, int, float, str):
        return False
    if hint is float and not math.isfinite(value):
        return False
    return all(isinstance(x, Interval) and all(conditions(x, value)) for x in limits)


def validated(
    hint: object, value: Any, name: str, text_rule: Rule | None = None
) -> Any:
    """Returns a value that has the type of a hint, with lists for tuples converted.

    Args:
        hint: the type hint.
        value: the value.
        name: its name, for the message.
        text_rule: what holds for every text in it.

    Raises:
        TypeMismatchError: it has another type, or violates a rule of the hint.
    """
    if not text_rule and _is_plain(hint, value):
        return value  # most options: pydantic need not be imported

    from pydantic import ValidationError

    try:
        return _adapter(hint, text_rule).validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
    for key in details["loc"]:
        name += f"[{key}]" if isinstance(key, int) else f".{key}"
    raise TypeMismatchError(name, details["msg"], details["input"])


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Makes a function refuse arguments that do not match its type hints; a decorator.

    It does not check `**options`, the items of iterables, and hints that are unknown at
    run time.

    Raises:
        UserError: by the function that is returned, for an argument of another type.
    """
    signature = inspect.signature(function)
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    defaults = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if parameter.kind not in variadic
    }

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # Python's own error says what is missing, or too much
            arguments = {}
        hints = resolved_hints(function)
        for name, value in arguments.items():
            if name in hints and name in defaults and value is not defaults[name]:
                require_type(name, hints[name], value)
        return function(*args, **kwargs)

    call.__signature__ = _without_limits(signature)  # type: ignore[attr-defined]
    return call


def _without_limits(signature: inspect.Signature) -> inspect.Signature:
    """Returns a signature as `help` should show it: types without their limits."""

    def plain(hint: Any) -> Any:
        if typing.get_origin(hint) is Annotated:
            return plain(typing.get_args(hint)[0])
        if len(alternatives(hint)) > 1:
            return functools.reduce(operator.or_, map(plain, alternatives(hint)))
        return hint

    parameters = [
        parameter.replace(annotation=plain(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def check_fields(values: "DataclassInstance", prefix: str) -> None:
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
        validated(hint, value, name)
    except TypeMismatchError as error:
        raise UserError(str(error)) from None
    if isinstance(value, str | Path) and Path in alternatives(hint):
        _require_possible_path(name, value)


def _require_possible_path(name: str, path: str | Path) -> None:
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
