"""tensor2tensor's hyper-parameters, sets and ranges, which users' functions change.

tensor2tensor has them in `hparam`, `common_hparams` and `transformer`. The values of
the sets are those of version 1.15.7.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_keras.entry_points import counterpart
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.hparam import HParams as OurHParams
from t2t_keras.options import split_pairs
from t2t_keras.ranged_hparams import RangedHParams as OurRangedHParams
from t2t_keras.ranged_hparams import Scale, Value

from ..t2t import t2t_sets
from ..t2t.hparams import convert_t2t_hparams
from ..t2t.names import NAMES, REMARKS, SAME_VALUES, WITHOUT_EFFECT
from . import say_once
from .missing import Missing, missing

_LEFT_OUT = {
    **REMARKS,
    "weight_decay": "AdamW's is another one; optimizer=adamw has it",
}

# This is tensor2tensor's model; a user's model may derive from it.
Transformer: Missing = missing("models.transformer.Transformer")


class _AbsentHparamError(UserError, AttributeError):
    """What `hasattr` and `getattr` with a default also take for an absence."""


class HParams:
    """tensor2tensor's hyper-parameters by its names; they can be assigned.

    Args:
        start: our set of the same name, whose `batch_tokens` and `train_steps` are
            used; None: the defaults are used.
        **values: the values.
    """

    def __init__(self, start: OurHParams | None = None, **values: object) -> None:
        self.__dict__["_start"] = start
        self.__dict__["_values"] = dict(values)
        self.__dict__["_assigned"] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._values:
            return self._values[name]
        raise _AbsentHparamError(absence(name, self._values))

    def __setattr__(self, name: str, value: object) -> None:
        self.set_hparam(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return f"HParams({self._values})"

    def get(self, name: str, default: object = None) -> object:
        """Returns a value, or the default if there is no such hyper-parameter."""
        return self._values.get(name, default)

    def values(self) -> dict[str, object]:
        """Returns all values by name."""
        return dict(self._values)

    def set_hparam(self, name: str, value: object) -> None:
        """Changes a hyper-parameter.

        Raises:
            UserError: tensor2tensor's Transformer has no such hyper-parameter.
        """
        if name not in NAMES:
            raise UserError(absence(name, NAMES))
        self._values[name] = value
        self._assigned[name] = value

    def add_hparam(self, name: str, value: object) -> None:
        """Adds a hyper-parameter of tensor2tensor's Transformer that the set lacks.

        Raises:
            UserError: the model has no such hyper-parameter, or the set has it.
        """
        if name in self._values and name in NAMES:
            raise UserError(
                f"add_hparam: '{name}' exists already; write hparams.{name} = ..."
            )
        if name not in NAMES:
            raise UserError(f"add_hparam: {absence(name, NAMES)}")
        self.set_hparam(name, value)

    def del_hparam(self, name: str) -> None:
        """Removes a hyper-parameter."""
        self._values.pop(name, None)
        self._assigned.pop(name, None)

    def override_from_dict(self, values: Mapping[str, object]) -> "HParams":
        """Changes several hyper-parameters, and returns the set."""
        for name, value in values.items():
            self.set_hparam(name, value)
        return self

    def parse(self, text: str) -> "HParams":
        """Changes the hyper-parameters in `"hidden_size=256,dropout=0.1"`."""
        for name, value in split_pairs(text).items():
            self.set_hparam(name, _parse_value(value))
        return self

    def converted(self, name: str) -> OurHParams:
        """Returns our hyper-parameters for the same model and training.

        Prints a remark on each value that has no effect here.

        Args:
            name: the name of the set, for remarks.

        Raises:
            UserError: the model does not exist here; the message names the field.
        """
        if self._values.get("shared_embedding"):
            raise UserError(
                f"hparams '{name}': shared_embedding, which leaves the softmax its own "
                "matrix, does not exist here; set shared_embedding_and_softmax_weights"
            )
        hparams, left_out = convert_t2t_hparams(self._values, f"hparams '{name}'")
        changes: dict[str, object] = {}
        start = self._start
        if start is not None:
            changes["train_steps"] = start.train_steps
            changes["bucketing"] = start.bucketing
            counts_tokens = not self._values.get("use_fixed_batch_size")
            if "batch_size" not in self._assigned and counts_tokens:
                changes["batch_tokens"] = start.batch_tokens
                left_out = [text for text in left_out if "batch_size" not in text]
        if self._values.get("activation_dtype", "float32") != "float32":
            changes["compute_dtype"] = self._values["activation_dtype"]
        for text in (*left_out, *self._without_effect()):
            say_once(f"hparams '{name}': {text}")
        return hparams.override(**changes)

    def _without_effect(self) -> Iterable[str]:
        """Yields a sentence about each assigned value that has no effect."""
        without_effect = WITHOUT_EFFECT
        if self._values.get("learning_rate_schedule") == "legacy":
            without_effect -= {"learning_rate", "learning_rate_decay_scheme"}
        for name in self._assigned:
            if name in without_effect:
                reason = REMARKS.get(name)
                yield f"{name} has no effect{f': {reason}' if reason else ''}"


def absence(name: str, names: Iterable[str]) -> str:
    """Returns a sentence about an unknown hyper-parameter."""
    return (
        f"'{name}' is not a hyper-parameter of tensor2tensor's Transformer"
        f"{did_you_mean(name, names)}; leave it out"
    )


def _parse_value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            pass
    return text


def basic_params1() -> HParams:
    """Returns the values that all of tensor2tensor's models share."""
    return HParams(**t2t_sets.BASIC_PARAMS)


def named_set(name: str) -> HParams:
    """Returns the values of one of tensor2tensor's sets.

    Raises:
        UserError: there is no such set here.
    """
    if name not in t2t_sets.SETS:
        raise UserError(
            f"tensor2tensor's hparam set '{name}' does not exist here"
            f"{did_you_mean(name, t2t_sets.SETS)}; begin with transformer_base"
        )
    return HParams(t2t_sets.hparams_of(name), **t2t_sets.t2t_set(name).values)


class RangedHParams(OurRangedHParams):
    """Ranges of tensor2tensor's hyper-parameters by its names.

    A range that has no effect here is left out with a remark.
    """

    def set_float(
        self,
        name: str,
        min_val: float,
        max_val: float,
        scale: Scale | None = None,
        length: int | None = None,
    ) -> None:
        """Sets the range of a number; `length` must be None."""
        if ours := _our_name(name, length):
            super().set_float(ours, min_val, max_val, scale or self.LINEAR_SCALE)

    def set_int(
        self,
        name: str,
        min_val: int,
        max_val: int,
        scale: Scale | None = None,
        length: int | None = None,
    ) -> None:
        """Sets the range of an integer; `length` must be None."""
        if ours := _our_name(name, length):
            super().set_int(ours, min_val, max_val, scale or self.LINEAR_SCALE)

    def set_discrete(
        self,
        name: str,
        feasible_points: Sequence[float],
        scale: Scale | None = None,
        length: int | None = None,
    ) -> None:
        """Sets numbers, which have no scale here; `length` must be None."""
        if ours := _our_name(name, length):
            super().set_discrete(ours, feasible_points)

    def set_categorical(
        self, name: str, categories: Sequence[Value], length: int | None = None
    ) -> None:
        """Sets texts or numbers; `length` must be None."""
        if ours := _our_name(name, length):
            super().set_categorical(ours, categories)


def _our_name(name: str, length: int | None) -> str:
    """Returns our name of a hyper-parameter; "" if it has no effect here.

    Raises:
        UserError: there is nothing that has the same values.
    """
    if length is not None:
        raise UserError(f"{name}: a range of lists does not exist here; omit length")
    if name == "batch_size":
        say_once("the range of batch_size is that of batch_tokens, of all GPUs")
    if name in SAME_VALUES:
        return SAME_VALUES[name]
    if name in WITHOUT_EFFECT or name in _LEFT_OUT:
        reason = _LEFT_OUT.get(name)
        remark = f": {reason}" if reason else ""
        say_once(f"the range of {name} is left out, it has no effect{remark}")
        return ""
    if name in NAMES:
        raise UserError(counterpart("hparams", name))
    raise UserError(absence(name, NAMES))


def transformer_base_range(rhp: RangedHParams) -> None:
    """Sets tensor2tensor's ranges around `transformer_base`; a user's may follow."""
    ours = OurRangedHParams()
    t2t_sets.transformer_base_range(ours)
    rhp.ranges |= ours.ranges
