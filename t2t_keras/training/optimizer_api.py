"""What every optimizer has, and what it needs to keep its state.

`t2t_keras.register_optimizer` adds one, or an entry point of `t2t_keras.optimizers`,
whose name is then a value of `HParams.optimizer`.

All optimizers run in replica context with the same all-reduced gradients on every
replica, which updates its own copy of weights and state. Keras's optimizers cannot do
that: in replica context their `apply` all-reduces the gradients again, and leaves the
replica context; and none of them can skip an update without a `tf.cond`. The tests
compare AdamW and Adafactor with those of Keras.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from t2t_keras.run.checkpoint import slot_name


class Optimizer(Protocol):
    """An optimizer, as the training step and checkpoints use it.

    Attributes:
        variables: its state by the names in a checkpoint.
    """

    variables: Mapping[str, tf.Variable]

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        is_applied: tf.Tensor,
    ) -> None:
        """Updates the weights, in replica context.

        Args:
            gradients: one dense gradient for each weight, the same on every replica.
            learning_rate: float32 scalar.
            step: float32 scalar, of this update, counted from 1.
            is_applied: bool scalar; if false, weights and state stay as they are. It
                selects the optimizer's constants, because a `tf.cond` would make the
                host wait for the gradients. A training begins with such an update, when
                the state is still zeros: divide by nothing that is 0 then, since 0
                times infinity is NaN.
        """


def slots(
    prefix: str,
    weights: Mapping[str, tf.Variable],
    shape: Callable[[tf.TensorShape], tf.TensorShape] = lambda shape: shape,
) -> dict[str, tf.Variable]:
    """Returns a variable of zeros for each weight, by its name in a checkpoint.

    Args:
        prefix: the beginning of the names, such as "adam/m".
        weights: the weights by their names in a checkpoint.
        shape: returns the shape of a slot for the shape of a weight.
    """
    return {
        slot_name(prefix, name): tf.Variable(tf.zeros(shape(weight.shape)))
        for name, weight in weights.items()
    }


def add_to(variable: tf.Variable, value: tf.Tensor) -> None:
    """Adds to a variable in replica context, where `assign_add` is not allowed."""
    tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=value)
