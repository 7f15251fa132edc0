"""The exponential moving average of the weights: an average without checkpoints."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from t2t_keras.training.optimizer_api import Optimizer, add_to, slots


class MovingAverage:
    """An optimizer that also updates a moving average of the weights.

    average += (1 - decay_t) * (weight - average), with t counted from 1 and decay_t =
    min(`decay`, (t - 1) / (t + 9)): the first average is the weights after the first
    update, and early averages soon forget the first weights.

    Create it in the scope of the strategy; each replica updates its own copy.

    Args:
        optimizer: updates the weights.
        weights: the weights by their names in a checkpoint.
        decay: `HParams.ema_decay`.

    Attributes:
        averages: the moving averages by the names of their weights.
        variables: the optimizer's variables and the averages, by their names in a
            checkpoint.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        weights: Mapping[str, tf.Variable],
        decay: float,
    ) -> None:
        self._optimizer = optimizer
        self._weights = weights
        self._decay = decay
        averages = slots("ema", weights)
        self.averages = dict(zip(weights, averages.values(), strict=True))
        self.variables: Mapping[str, tf.Variable]
        self.variables = {**optimizer.variables, **averages}

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        is_applied: tf.Tensor,
    ) -> None:
        """Updates the weights, then their averages; see `Optimizer.apply`."""
        self._optimizer.apply(gradients, learning_rate, step, is_applied)
        share = 1 - tf.minimum(self._decay, (step - 1) / (step + 9))
        share = tf.where(is_applied, share, 0.0)
        for name, average in self.averages.items():
            change = self._weights[name] - average
            add_to(average, tf.math.multiply_no_nan(change, share))
