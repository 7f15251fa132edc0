"""The learning rate for Keras's optimizers."""

import dataclasses
import math
from typing import Any, Self

import keras
from keras import ops

from t2t_keras.hparam import HParams
from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers import serializable


@serializable
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of an hparam set (5.3), for `keras.optimizers.Adam`.

    Args:
        hparams: `learning_rate`, `schedule`, `warmup_steps` and `d_model`.
    """

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the rate of an update, float32; Keras counts them from 0."""
        number = ops.cast(step, "float32") + 1.0
        warmup = float(self.hparams.warmup_steps)
        factors = {
            "constant": 1.0,
            "linear_warmup": ops.minimum(1.0, number / warmup),
            "rsqrt_decay": ops.rsqrt(ops.maximum(number, warmup)),
            "rsqrt_normalized_decay": ops.rsqrt(ops.maximum(1.0, number / warmup)),
            "rsqrt_hidden_size": self.hparams.d_model**-0.5,
        }
        chosen = (factors[name] for name in self.hparams.schedule.split("*"))
        return self.hparams.learning_rate * math.prod(chosen)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"hparams": dataclasses.asdict(self.hparams)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the schedule that `get_config` describes."""
        return cls(HParams.from_dict(config["hparams"]))
