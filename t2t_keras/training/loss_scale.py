"""A dynamic loss scale, without which small gradients vanish in float16."""

import tensorflow as tf

DOUBLE_AFTER = 2000  # updates since the scale changed
SMALLEST = 2.0**-24  # below it the gradient itself is not finite


class LossScale:
    """A factor on the loss that keeps float16 gradients between 6e-8 and 65,504.

    Gradients that overflow halve it, and their update is left out; it doubles after
    every 2,000 updates without that. It multiplies a sum over tokens: 1, where it
    begins, is to a batch of 32,768 tokens what 2^15, the usual begin, is to its mean.

    Create it in the scope of the strategy and update it in each replica, with the same
    answer everywhere: every replica has its own copy.
    """

    def __init__(self) -> None:
        self._scale = tf.Variable(1.0, trainable=False)
        self._good_steps = tf.Variable(0, trainable=False, dtype=tf.int64)

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """The state by its names in a checkpoint."""
        return {
            "loss_scale/scale": self._scale,
            "loss_scale/good_steps": self._good_steps,
        }

    @property
    def value(self) -> tf.Tensor:
        """What to multiply the loss by."""
        return self._scale.read_value()

    def update(self, good: tf.Tensor) -> tf.Tensor:
        """Counts a step, in replica context.

        Args:
            good: whether all its gradients were finite.

        Returns:
            Whether a lower scale may help those that were not: bool scalar.
        """
        scale, good_steps = self.value, self._good_steps.read_value() + 1
        none = tf.zeros_like(good_steps)
        is_due = tf.equal(good_steps, DOUBLE_AFTER)
        raised = tf.where(is_due, 2 * scale, scale)
        counted = tf.where(is_due, none, good_steps)
        # As in Adam: a replica may not call `assign` on a mirrored variable.
        _assign(self._scale, tf.where(good, raised, scale / 2))
        _assign(self._good_steps, tf.where(good, counted, none))
        return tf.logical_and(tf.logical_not(good), scale > SMALLEST)


def _assign(variable: tf.Variable, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
