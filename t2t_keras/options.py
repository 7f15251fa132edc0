"""Options: dataclass fields with a help text and limits.

`HParams`, `TrainOptions` and `DecodingOptions` consist of options.
"""

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from annotated_types import Interval

from t2t_keras.checking import (
    LARGEST,
    TypeMismatchError,
    alternatives,
    conditions,
    describe_limits,
    resolved_hints,
    validated,
)
from t2t_keras.entry_points import unknown_name
from t2t_keras.errors import UserError, short_repr

T = TypeVar("T")

# Values of options by name; the dataclass of the options checks them.
OptionValues: TypeAlias = dict[str, Any]

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def option(
    default: T,
    help: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    **uses: object,
) -> T:
    """Returns the dataclass field for an option.

    An integer without an upper limit is at most 10^9, so that it fits into a graph.

    Args:
        default: the default value.
        help: what the option does, for `t2t list` or the flag's help.
        ge: the value must be greater than or equal to this number.
        gt: the value must be greater than this number.
        le: the value must be less than or equal to this number.
        lt: the value must be less than this number.
        **uses: further metadata, see `option_names`.
    """
    limits = Interval(ge=ge, gt=gt, le=le, lt=lt)
    metadata = {"help": help, "limits": limits, **uses}
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


def option_names(options: type, use: str) -> list[str]:
    """Returns the names of the options whose metadata `use` is true."""
    return [
        field.name for field in dataclasses.fields(options) if field.metadata.get(use)
    ]


def limits_of(field: "dataclasses.Field[Any]") -> Interval:
    """Returns the limits of an option."""
    limits: Interval = field.metadata["limits"]
    has_maximum = limits.le is not None or limits.lt is not None
    if field.type in (int, int | None) and not has_maximum:
        return dataclasses.replace(limits, le=LARGEST)
    return limits


def split_pairs(text: str, prefix: str = "") -> dict[str, str]:
    """Returns the values in `"a=1,b=[2,3]"` by name; a value in [...] may have commas.

    Args:
        text: the value of a flag.
        prefix: begins the message.

    Raises:
        UserError: a part is not `key=value`, a key is given twice, or a list has no end
            or no start.
    """
    pairs: dict[str, str] = {}
    for item in filter(None, _parts_outside_lists(text, prefix)):
        name, equals, value = map(str.strip, item.partition("="))
        if not equals:
            raise UserError(f"{prefix}'{item}' is not key=value")
        if name in pairs:
            raise UserError(f"{prefix}'{name}' is given twice")
        pairs[name] = value
    return pairs


def _parts_outside_lists(text: str, prefix: str) -> Iterator[str]:
    """Yields the parts of a text between its commas, except for those within [...]."""
    start = 0
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth < 0:
            part = text[start : index + 1].strip()
            raise UserError(f"{prefix}'{part}' has a ] without [; a list is [a,b]")
        if character == "," and not depth:
            yield text[start:index].strip()
            start = index + 1
    part = text[start:].strip()
    if depth:
        raise UserError(f"{prefix}'{part}' has a [ without ]; a list is [a,b]")
    yield part


def require_known(
    options: type,
    values: Mapping[str, object],
    prefix: str = "",
    context: str = "",
    others: Iterable[str] = (),
) -> None:
    """Refuses names that no option has, all at once.

    Args:
        options: the dataclass.
        values: the values by name, perhaps as texts.
        prefix: begins the message.
        context: see `counterpart`.
        others: further names that the message may suggest.

    Raises:
        UserError: says for each such name what to use instead.
    """
    names = [field.name for field in dataclasses.fields(options)]
    messages = []
    for name, value in values.items():
        if name not in names:
            known = [*names, *others]
            messages.append(unknown_name(context, name, known, str(value)))
    if messages:
        raise UserError(prefix + "; ".join(messages))


def parse_value(
    options: type, name: str, value: object, prefix: str = "", context: str = ""
) -> Any:
    """Returns a value, perhaps given as text, in the type of an option.

    Args:
        options: the dataclass.
        name: the option.
        value: its value. Only bool, int and float are converted.
        prefix: begins the message.
        context: see `counterpart`.

    Raises:
        UserError: there is no such option, or the value has another type.
    """
    require_known(options, {name: value}, prefix, context)
    hint = resolved_hints(options)[name]
    words = _words(hint)
    if isinstance(value, str) and value not in words:
        hint = alternatives(hint)[0]  # of `int | None`
    if hint not in (bool, int, float):
        return value
    converted = _converted(hint, value)
    try:
        return validated(hint, converted, name)
    except TypeMismatchError as error:
        expected = " or ".join([error.expected, *words])
        raise UserError(
            f"{prefix}{name} must be {expected}, not {short_repr(value)}"
        ) from None


def _words(hint: object) -> list[str]:
    """Returns the texts that a union has as values, such as of `bool | "auto"`."""
    words: list[str] = []
    if len(alternatives(hint)) > 1:
        for alternative in alternatives(hint):
            if typing.get_origin(alternative) is Literal:
                words += typing.get_args(alternative)
    return words


def _converted(hint: type, value: object) -> object:
    """Returns the number or truth value that a text gives; others unchanged.

    A whole `float` becomes an integer where one is needed.
    """
    if hint is bool:
        text = value if isinstance(value, str) else short_repr(value)
        return _BOOLEANS.get(text.lower(), value)
    if isinstance(value, bool):
        return value
    try:
        as_float = float(value)  # type: ignore[arg-type]  # other types raise TypeError
    except (OverflowError, TypeError, ValueError):
        return value
    if hint is float:
        return as_float
    return int(as_float) if as_float.is_integer() else value


def parse_options(options: type, text: str, context: str = "") -> OptionValues:
    """Returns the options of a text such as `"truncate=true,protect=[url,email]"`.

    Args:
        options: the dataclass.
        text: the text.
        context: see `counterpart`.

    Raises:
        UserError: there is no such option, or a value has another type.
    """
    parsers = {
        field.name: field.metadata.get("parse") for field in dataclasses.fields(options)
    }
    pairs = split_pairs(text)
    require_known(options, pairs, context=context)
    values: OptionValues = {}
    for name, value in pairs.items():
        if parse := parsers.get(name):
            values[name] = parse(value)
        else:
            values[name] = parse_value(options, name, value, context=context)
    return values


def check_options(
    options: type, values: Mapping[str, object], prefix: str = ""
) -> None:
    """Checks the types and limits of options.

    Args:
        options: the dataclass.
        values: some options by name.
        prefix: begins the message.

    Raises:
        UserError: a value is impossible.
    """
    hints = resolved_hints(options)
    for field in dataclasses.fields(options):
        value = values.get(field.name, field.default)
        if value is field.default:
            continue
        try:
            validated(hints[field.name], value, field.name)
            # Only a value above the limit of a graph's integers needs to know of it.
            for limits in (field.metadata["limits"], limits_of(field)):
                if value is not None and not all(conditions(limits, value)):
                    expected = describe_limits(limits)
                    raise TypeMismatchError(field.name, expected, value)
        except TypeMismatchError as error:
            raise UserError(f"{prefix}{error}") from None
