"""The learning rate (5.3): of a step, and as a schedule for Keras's optimizers."""

import dataclasses
import math
from collections.abc import Callable
from typing import Self

import keras
from keras import ops

from t2t_keras.hparam import OTHER_SCHEDULE_FACTORS, HParams
from t2t_keras.model.backend import Tensor, serializable


def scheduled_rate(
    hparams: HParams,
    step: float | Tensor,
    minimum: Callable[[float, float | Tensor], float | Tensor],
    maximum: Callable[[float | Tensor, float], float | Tensor],
) -> float | Tensor:
    """Returns `hparams.learning_rate` times the factors that `schedule` names.

    Those of `base` are equation 3 (5.3). Steps count from 1 and are numbers, with `min`
    and `max` for `minimum` and `maximum`, or tensors with the functions for tensors.
    """
    warmup = hparams.warmup_steps
    factors = {
        "constant": 1.0,
        "linear_warmup": minimum(1.0, step / warmup),
        "rsqrt_decay": maximum(step, warmup) ** -0.5,
        # Like rsqrt_decay, but 1 after the warm-up, so that learning_rate is the peak.
        "rsqrt_normalized_decay": maximum(1.0, step / warmup) ** -0.5,
        "rsqrt_hidden_size": hparams.d_model**-0.5,
    }
    product = math.prod(
        factors[name]
        if name in factors
        else OTHER_SCHEDULE_FACTORS.get(name)(hparams, step)
        for name in hparams.schedule.split("*")
    )
    return hparams.learning_rate * product


@serializable
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of an hparam set (5.3), for `keras.optimizers.Adam`."""

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the rate of an update, float32; Keras counts them from 0."""
        step = ops.cast(step, "float32") + 1.0
        return scheduled_rate(self.hparams, step, ops.minimum, ops.maximum)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return {"hparams": dataclasses.asdict(self.hparams)}

    @classmethod
    def from_config(cls, config: dict[str, dict[str, object]]) -> Self:
        """Returns the schedule that `get_config` describes."""
        return cls(HParams.from_dict(config["hparams"]))
