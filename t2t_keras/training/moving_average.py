"""The exponential moving average of the weights: an average without checkpoints."""

from collections.abc import Mapping

import tensorflow as tf

from t2t_keras.training.optimizer import add_to, slots


class MovingAverage:
    """The exponential moving average of the weights: an average without checkpoints.

    average += (1 - decay_t) * (weight - average), with t counted from 1 and decay_t =
    min(`decay`, (t - 1) / (t + 9)): the first average is the weights after the first
    update, and early ones forget the beginning at once.

    Create it in the scope of the strategy; each replica updates its own copy.

    Args:
        weights: the weights by their names in a checkpoint.
        decay: `HParams.ema_decay`.

    Attributes:
        averages: the moving averages by the names of their weights.
        variables: the same by their own names in a checkpoint.
    """

    def __init__(self, weights: Mapping[str, tf.Variable], decay: float) -> None:
        self._weights = weights
        self._decay = decay
        self.variables = slots("ema", weights)
        self.averages = dict(zip(weights, self.variables.values(), strict=True))

    def update(self, step: tf.Tensor, is_applied: tf.Tensor) -> None:
        """Follows an update of the weights, in replica context.

        Args:
            step: float32 scalar, of that update, counted from 1.
            is_applied: see `Optimizer.apply`.
        """
        share = 1 - tf.minimum(self._decay, (step - 1) / (step + 9))
        share = tf.where(is_applied, share, 0.0)
        for name, average in self.averages.items():
            change = self._weights[name] - average
            add_to(average, tf.math.multiply_no_nan(change, share))
