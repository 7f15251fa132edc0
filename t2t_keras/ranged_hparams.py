"""RangedHParams: ranges of hyper-parameters, from which a search takes its values.

A program that searches maps the ranges to its own, or draws numbers between 0 and 1
and asks each range for its value there.
"""

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from t2t_keras.errors import UserError, short_repr
from t2t_keras.hparam import HParams

Scale = Literal["linear", "log", "reverse_log"]
Value: TypeAlias = str | bool | int | float

# Impossible combinations are refused at once if there are only such.
_DRAWS = 50


@dataclasses.dataclass(frozen=True)
class Interval:
    """The numbers between two ends, with both of them.

    Attributes:
        low: the smallest value.
        high: the largest value.
        scale: "linear"; "log" spreads out the values near the smallest one,
            "reverse_log" those near the largest one.
        is_integer: whether the values are integers.
    """

    low: float
    high: float
    scale: Scale = "linear"
    is_integer: bool = False

    def __str__(self) -> str:
        scale = "" if self.scale == "linear" else f", {self.scale} scale"
        return f"{self.low:g} to {self.high:g}{scale}"

    @property
    def examples(self) -> tuple[Value, ...]:
        """The values that a hyper-parameter must be able to have."""
        return self.low, self.high

    def value_at(self, position: float) -> Value:
        """Returns the value at a position from 0 (`low`) to 1 (`high`)."""
        if self.scale == "reverse_log":
            reflected = dataclasses.replace(self, scale="log", is_integer=False)
            value = self.low + self.high - float(reflected.value_at(1 - position))
        elif self.scale == "log":
            value = self.low * (self.high / self.low) ** position
        else:
            value = self.low + (self.high - self.low) * position
        value = min(max(value, self.low), self.high)  # against rounding
        return round(value) if self.is_integer else value


@dataclasses.dataclass(frozen=True)
class Choices:
    """Some values.

    Attributes:
        values: the values, at least one.
    """

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))

    @property
    def examples(self) -> tuple[Value, ...]:
        """The values that a hyper-parameter must be able to have."""
        return self.values

    def value_at(self, position: float) -> Value:
        """Returns the value at a position from 0 (the first) to 1 (the last)."""
        index = int(position * len(self.values))
        return self.values[min(index, len(self.values) - 1)]


Range: TypeAlias = Interval | Choices


class RangedHParams:
    """Ranges of hyper-parameters by name, with tensor2tensor's methods.

    A name that is set again has the last range. The names may be tensor2tensor's, such
    as `hidden_size`.
    """

    LINEAR_SCALE: Scale = "linear"
    LOG_SCALE: Scale = "log"
    REVERSE_LOG_SCALE: Scale = "reverse_log"

    def __init__(self) -> None:
        self.ranges: dict[str, Range] = {}

    def set_float(
        self, name: str, min_val: float, max_val: float, scale: Scale = LINEAR_SCALE
    ) -> None:
        """Sets the range of a number.

        Args:
            name: the hyper-parameter.
            min_val: the smallest value.
            max_val: the largest value.
            scale: how the values between them are spread out, see `Interval`.

        Raises:
            UserError: there is no such range.
        """
        low = _require_number(name, min_val, float)
        high = _require_number(name, max_val, float)
        self._set_interval(name, Interval(low, high, scale))

    def set_int(
        self, name: str, min_val: int, max_val: int, scale: Scale = LINEAR_SCALE
    ) -> None:
        """Sets the range of an integer; see `set_float`."""
        low = _require_number(name, min_val, int)
        high = _require_number(name, max_val, int)
        self._set_interval(name, Interval(low, high, scale, is_integer=True))

    def set_discrete(self, name: str, feasible_points: Sequence[float]) -> None:
        """Sets the numbers that a hyper-parameter may have.

        Raises:
            UserError: there is none, or one of them is not a number.
        """
        for point in feasible_points:
            _require_number(name, point, float)
        self._set_choices(name, feasible_points)

    def set_categorical(self, name: str, categories: Sequence[Value]) -> None:
        """Sets the values that a hyper-parameter may have, such as texts.

        Raises:
            UserError: there is none.
        """
        self._set_choices(name, categories)

    def resolve(self, hparams: HParams) -> dict[str, Range]:
        """Returns the ranges by the names of the hyper-parameters of a set.

        Args:
            hparams: the set of which a search changes these hyper-parameters.

        Raises:
            UserError: there is no range; the model has no such hyper-parameter, or it
                cannot have the ends of its range; or all combinations are impossible.
        """
        if not self.ranges:
            raise UserError("there is no range; set one, such as by set_float")
        resolved: dict[str, Range] = {}
        for name, values in self.ranges.items():
            field = ""
            for example in values.examples:
                field, converted = hparams.field_value(name, example)
                if type(converted) is int and _is_continuous(values):
                    raise UserError(f"{name} is an integer: use set_int, not set_float")
            if field in resolved:
                raise UserError(f"'{field}' has two ranges, also as '{name}'")
            resolved[field] = values
        _require_possible(hparams, resolved)
        return resolved

    def _set_interval(self, name: str, interval: Interval) -> None:
        if interval.scale not in get_args(Scale):
            raise UserError(
                f"{name}: the scale must be one of {', '.join(get_args(Scale))}, not "
                f"{short_repr(interval.scale)}"
            )
        if not interval.low < interval.high:
            raise UserError(
                f"{name}: the range from {interval.low:g} to {interval.high:g} is "
                "empty; its smallest value comes first (use set_discrete for one value)"
            )
        if interval.scale != "linear" and interval.low <= 0:
            raise UserError(
                f"{name}: a range on the {interval.scale} scale must begin above 0, "
                f"not at {interval.low:g}"
            )
        self.ranges[name] = interval

    def _set_choices(self, name: str, values: Sequence[Value]) -> None:
        if isinstance(values, str) or not len(values):
            raise UserError(
                f"{name}: a list of values is needed, not {short_repr(values)}"
            )
        for value in values:
            if not isinstance(value, str | bool | int | float):
                raise UserError(
                    f"{name}: {short_repr(value)} is neither a text nor a number"
                )
        self.ranges[name] = Choices(tuple(values))


def _require_number(name: str, value: object, number_type: type) -> Any:
    """Returns a finite number in a type, or raises UserError."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(float(value)):  # type: ignore[arg-type]
        raise UserError(f"{name}: {short_repr(value)} is not a finite number")
    if number_type is int and value != int(value):  # type: ignore[call-overload]
        raise UserError(f"{name}: {value} is not an integer; use set_float")
    return number_type(value)


def _is_continuous(values: Range) -> bool:
    return isinstance(values, Interval) and not values.is_integer


def _require_possible(hparams: HParams, ranges: Mapping[str, Range]) -> None:
    """Raises the UserError of a combination if all that are tried are impossible."""
    generator = random.Random(0)
    refusal: UserError | None = None
    for _ in range(_DRAWS):
        changes = {
            name: values.value_at(generator.random()) for name, values in ranges.items()
        }
        try:
            hparams.override(**changes)
        except UserError as error:
            refusal = refusal or error
        else:
            return
    raise UserError(f"every combination of the ranges is impossible, such as {refusal}")
