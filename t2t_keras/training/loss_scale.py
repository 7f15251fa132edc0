"""The dynamic loss scale of training in float16."""

import tensorflow as tf

DOUBLE_AFTER = 2000  # updates since the loss scale changed


class LossScale:
    """A dynamic factor on the loss that keeps float16 gradients from vanishing.

    It keeps them between 6e-8 and 65,504. Gradients that overflow halve it, and their
    update is skipped; it doubles after every 2,000 updates without overflow. It
    multiplies a sum over tokens: its initial value of 1 is to a batch of 32,768 tokens
    what 2^15, the usual initial value, is to the mean of the batch.

    Create it in the scope of the strategy: every replica has its own copy.
    """

    def __init__(self) -> None:
        self._scale = tf.Variable(1.0, trainable=False)
        self._good_steps = tf.Variable(0, trainable=False, dtype=tf.int64)
        # By the names in a checkpoint.
        self.variables = {
            "loss_scale/scale": self._scale,
            "loss_scale/good_steps": self._good_steps,
        }

    @property
    def value(self) -> tf.Tensor:
        """What to multiply the loss by."""
        return self._scale.read_value()

    def updates(self, is_finite: tf.Tensor) -> list[tuple[tf.Variable, tf.Tensor]]:
        """Returns the values of its variables after a step.

        Args:
            is_finite: whether all gradients of the step were finite.
        """
        scale, good_steps = self.value, self._good_steps.read_value() + 1
        none = tf.zeros_like(good_steps)
        is_due = tf.equal(good_steps, DOUBLE_AFTER)
        raised = tf.where(is_due, 2 * scale, scale)
        counted = tf.where(is_due, none, good_steps)
        return [
            (self._scale, tf.where(is_finite, raised, scale / 2)),
            (self._good_steps, tf.where(is_finite, counted, none)),
        ]
