"""The dynamic loss scale of training in float16."""

import tensorflow as tf

DOUBLE_AFTER = 2000  # updates without overflow


class LossScale:
    """A dynamic factor on the loss that keeps float16 gradients from vanishing.

    Float16 ranges from 6e-8 to 65,504. Gradients that overflow halve the scale, and
    their update is skipped; the scale doubles after every 2,000 updates without
    overflow. It multiplies a sum over tokens: for a batch of 32,768 tokens, its initial
    value of 1 is the usual initial value of 2^15 on the mean of the batch.

    Create it in the scope of the strategy: every replica has its own copy.
    """

    def __init__(self) -> None:
        self._scale = tf.Variable(1.0, trainable=False)
        self._good_steps = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.variables = {  # by their names in a checkpoint
            "loss_scale/scale": self._scale,
            "loss_scale/good_steps": self._good_steps,
        }

    @property
    def value(self) -> tf.Tensor:
        """The factor on the loss, float32 scalar."""
        return self._scale.read_value()

    def updates(self, is_finite: tf.Tensor) -> list[tuple[tf.Variable, tf.Tensor]]:
        """Returns its variables with their values after a step.

        Args:
            is_finite: whether all gradients of the step were finite.
        """
        scale = self.value
        good_steps = self._good_steps.read_value() + 1
        zero = tf.zeros_like(good_steps)
        is_due = tf.equal(good_steps, DOUBLE_AFTER)
        next_scale = tf.where(is_due, 2 * scale, scale)
        next_good_steps = tf.where(is_due, zero, good_steps)
        return [
            (self._scale, tf.where(is_finite, next_scale, scale / 2)),
            (self._good_steps, tf.where(is_finite, next_good_steps, zero)),
        ]
