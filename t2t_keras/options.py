"""Options: dataclass fields with a help text and limits.

`HParams`, `TrainOptions` and `DecodingOptions` consist of options.
"""

import dataclasses
import math
import numbers
import operator
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from t2t_keras.entry_points import unknown_name
from t2t_keras.errors import UserError, short_repr


def is_finite(number: Any) -> bool:
    """Returns whether a number is finite as a `float`."""
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer of hundreds of digits
        return False


# The largest integer for a graph, whose integers have 32 bits; some are doubled there.
_LARGEST = 10**9


_LIMITS = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "below"),
}


_KINDS: dict[Any, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (numbers.Integral, "an integer"),
    float: (numbers.Real, "a number"),
    str: (str, "text"),
}


def option(
    default: Any,
    help: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    **uses: Any,
) -> Any:
    """Returns the dataclass field for an option.

    An integer without an upper limit is at most 10^9, so that graphs can have it.

    Args:
        default: the default value.
        help: what the option does, for `t2t list` or the flag's help.
        ge: the smallest possible value.
        gt: a number below all possible values.
        le: the largest possible value.
        lt: a number above all possible values.
        **uses: further metadata, see `option_names`.
    """
    limits = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    about = {"help": help, **limits, **uses}
    return dataclasses.field(default=default, metadata=about)


def option_names(options: type, use: str) -> list[str]:
    """Returns the names of the options whose metadata `use` is true."""
    return [f.name for f in dataclasses.fields(options) if f.metadata.get(use)]


def conditions(options: type, values: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yields what must hold for the values of options, and the message if not.

    Args:
        options: the dataclass.
        values: some options by name, as numbers or as scalar tensors. None is not
            checked.
    """
    for field in dataclasses.fields(options):
        if (value := values.get(field.name)) is None:
            continue
        if field.type is float:  # the comparison is false for NaN as well
            yield abs(value) < math.inf, f"{field.name} must be a finite number"
        limits = {k: v for k in _LIMITS if (v := field.metadata[k]) is not None}
        text = " and ".join(f"{_LIMITS[k][1]} {v}" for k, v in limits.items())
        for kind, limit in limits.items():
            yield _LIMITS[kind][0](value, limit), f"{field.name} must be {text}"
        if field.type in (int, int | None) and not limits.keys() & {"le", "lt"}:
            yield value <= _LARGEST, f"{field.name} must be at most {_LARGEST}"


def split_pairs(text: str, prefix: str = "") -> dict[str, str]:
    """Returns the values in `"a=1,b=[2,3]"` by name; [...] may have commas.

    Args:
        text: the value of a flag.
        prefix: begins the message.

    Raises:
        UserError: a part is not `key=value`, or a key is given twice.
    """
    pairs: dict[str, str] = {}
    for item in filter(None, map(str.strip, re.split(r",(?![^\[]*\])", text))):
        name, equals, value = map(str.strip, item.partition("="))
        if not equals:
            raise UserError(f"{prefix}'{item}' is not key=value")
        if name in pairs:
            raise UserError(f"{prefix}'{name}' is given twice")
        pairs[name] = value
    return pairs


def parse_value(
    options: type, name: str, value: Any, prefix: str = "", context: str = ""
) -> Any:
    """Returns a value, which may be given as text, in the type of an option.

    Args:
        options: the dataclass.
        name: the option.
        value: its value; other types than bool, int and float are returned as given.
        prefix: begins the message.
        context: see `counterpart`.

    Raises:
        UserError: there is no such option, or the value has another type.
    """
    kinds = {field.name: field.type for field in dataclasses.fields(options)}
    if name not in kinds:
        raise UserError(f"{prefix}{unknown_name(context, name, kinds, str(value))}")
    kind = kinds[name]
    if isinstance(kind, types.UnionType) and isinstance(value, str):
        kind = get_args(kind)[0]  # of `int | None`
    try:
        if kind is bool:
            values = {"true": True, "1": True, "false": False, "0": False}
            text = value if isinstance(value, str) else short_repr(value)
            return values[text.lower()]
        if kind is float or kind is int:
            if isinstance(value, bool):
                raise ValueError
            number = float(value)
            if not math.isfinite(number) or (kind is int and not number.is_integer()):
                raise ValueError
            return int(number) if kind is int else number
    except (KeyError, OverflowError, TypeError, ValueError):
        expected = _KINDS[kind][1]
        raise UserError(
            f"{prefix}{name} must be {expected}, not {short_repr(value)}"
        ) from None
    return value


def parse_options(options: type, text: str, context: str = "") -> dict[str, Any]:
    """Returns the options of a text such as `"truncate=true,protect=[url,email]"`.

    Args:
        options: the dataclass.
        text: the text.
        context: see `counterpart`.

    Raises:
        UserError: there is no such option, or a value has another type.
    """
    parsers = {f.name: f.metadata.get("parse") for f in dataclasses.fields(options)}
    found = {}
    for name, value in split_pairs(text).items():
        parse = parsers.get(name)
        found[name] = (
            parse(value) if parse else parse_value(options, name, value, "", context)
        )
    return found


def check_options(options: type, values: Mapping[str, Any], prefix: str = "") -> None:
    """Checks the types and limits of options.

    Args:
        options: the dataclass.
        values: some options by name.
        prefix: begins the message.

    Raises:
        UserError: a value is impossible.
    """
    for field in dataclasses.fields(options):
        if field.name not in values:
            continue
        value, kind = values[field.name], field.type
        if get_origin(kind) is Literal:
            choice = get_args(kind)
            if not isinstance(value, str) or value not in choice:
                raise UserError(
                    f"{prefix}{field.name} must be one of {', '.join(choice)}, not "
                    f"{short_repr(value)}"
                )
        if isinstance(kind, types.UnionType):  # such as int | None
            kind = get_args(kind)[0] if value is not None else None
        if kind in _KINDS:
            expected, name = _KINDS[kind]
            is_bool = isinstance(value, bool)
            if not isinstance(value, expected) or is_bool != (kind is bool):
                raise UserError(
                    f"{prefix}{field.name} must be {name}, not {short_repr(value)}"
                )
            if kind is float and not is_finite(value):
                raise UserError(f"{prefix}{field.name} must be a finite number")
    for holds, message in conditions(options, values):
        if not holds:
            raise UserError(f"{prefix}{message}")
