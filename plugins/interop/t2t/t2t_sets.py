"""tensor2tensor's hparam sets and ranges, with the values of version 1.15.7.

`sets.toml` has the sets by tensor2tensor's names; those with a description are
registered. The paper's sets are in `paper`. tensor2tensor's `batch_size` counts the
tokens on each GPU; `batch_tokens` here counts those on the 8 GPUs of its README, or on
one GPU in `..._single_gpu`, `transformer_tiny` and `transformer_small`.
`docs/paper.md`, "Where tensor2tensor differs", lists the other differences, such as the
learning rate of the first step.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.hparam import HParams
from t2t_keras.ranged_hparams import RangedHParams
from t2t_keras.registry import register_hparams, register_ranged_hparams

from .hparams import convert_t2t_hparams

_TRAIN_STEPS = 250_000

SETS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("sets.toml").read_text("utf-8")
)
# The values that all of tensor2tensor's models share.
BASIC_PARAMS: dict[str, Any] = SETS.pop("basic_params1")


class T2TSet(NamedTuple):
    """A set of tensor2tensor.

    Attributes:
        values: the values by tensor2tensor's names.
        gpus: the number of GPUs that the set is for.
    """

    values: dict[str, Any]
    gpus: int


def t2t_set(name: str) -> T2TSet:
    """Returns the set of a name in `SETS`."""
    changes = SETS[name]
    base = T2TSet(BASIC_PARAMS, gpus=1)
    if "base" in changes:
        base = t2t_set(changes["base"])
    values = {**base.values, **changes.get("values", {})}
    return T2TSet(values, changes.get("gpus", base.gpus))


def hparams_of(name: str) -> HParams:
    """Returns our hyper-parameters for the set of a name in `SETS`."""
    values, gpus = t2t_set(name)
    hparams, _ = convert_t2t_hparams(values, f"hparams '{name}'")
    return hparams.override(
        batch_tokens=hparams.batch_tokens * gpus, train_steps=_TRAIN_STEPS
    )


def _register(name: str, description: str) -> None:
    """Registers one of tensor2tensor's sets."""

    def make_hparams() -> HParams:
        return hparams_of(name)

    make_hparams.__name__ = name
    make_hparams.__doc__ = description
    register_hparams(make_hparams)


for _name, _changes in SETS.items():
    if "description" in _changes:
        _register(_name, _changes["description"])


@register_ranged_hparams
def transformer_base_range(rhp: RangedHParams) -> None:
    """tensor2tensor's ranges around base: learning rate, warm-up, Adam's betas.

    The learning rate is the factor of the schedule, 1 in the paper and 2 in
    `transformer_base`. tensor2tensor's `initializer_gain` and `weight_decay`, a loss
    there, do not exist here.
    """
    rhp.set_float("learning_rate", 0.3, 3.0, scale=rhp.LOG_SCALE)
    rhp.set_discrete("warmup_steps", [1000, 2000, 4000, 8000, 16_000])
    rhp.set_float("adam_beta1", 0.85, 0.95)
    rhp.set_float("adam_beta2", 0.97, 0.99)


_DROPOUT = (
    "tensor2tensor's Transformer ignores dropout; here, dropout is its "
    "layer_prepostprocess_dropout"
)
_LEGACY_RATE = (
    "tensor2tensor's {name} multiplies learning_rate by 10; here, learning_rate is the "
    "product, {rate:g} in this set"
)
_RATE = (
    "tensor2tensor's {name} ignores learning_rate, since its schedule takes "
    "learning_rate_constant; here, both names are the factor of the schedule, {rate:g} "
    "in this set"
)
_LEGACY_CONSTANT = (
    "tensor2tensor's {name} ignores learning_rate_constant, since its schedule is "
    "'legacy'; here, it is another name of learning_rate, {rate:g} in this set"
)
_WEIGHT_DECAY = (
    "tensor2tensor's weight_decay adds squared weights to the loss; here, it is AdamW's"
)


def remarks(hparams_set: str, changes: Sequence[str]) -> list[str]:
    """Returns a sentence for each change that means something else in tensor2tensor.

    A change has our meaning; the remark tells users who expect tensor2tensor's.

    Args:
        hparams_set: the name of the set; other sets than tensor2tensor's have no
            remarks.
        changes: the names of the hyper-parameters that the user changes.
    """
    if "description" not in SETS.get(hparams_set, {}):
        return []
    texts = {
        "dropout": _DROPOUT,
        "learning_rate": _RATE,
        "weight_decay": _WEIGHT_DECAY,
    }
    # This schedule uses learning_rate.
    if t2t_set(hparams_set).values["learning_rate_schedule"] == "legacy":
        texts["learning_rate"] = _LEGACY_RATE
        texts["learning_rate_constant"] = _LEGACY_CONSTANT
    rate = hparams_of(hparams_set).learning_rate
    return [
        texts[name].format(name=hparams_set, rate=rate)
        for name in dict.fromkeys(changes)
        if name in texts
    ]
