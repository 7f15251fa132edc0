"""The exponential moving average of the weights: an average without checkpoints."""

from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.hparam import HParams
from t2t_keras.training.optimizer import Adam


class AveragedAdam(Adam):
    """Adam, after whose every update a moving average of the weights is updated.

    average += (1 - decay_t) * (weight - average), with t counted from 1 and decay_t =
    min(`ema_decay`, (t - 1) / (t + 9)): so the first average is the first weights, and
    early ones forget the beginning at once.

    Each replica updates its own copy, as it does with the weights.
    """

    def __init__(self, weights: Sequence[tf.Variable], hparams: HParams) -> None:
        super().__init__(weights, hparams)
        self._decay = hparams.ema_decay
        self.averages = [tf.Variable(tf.zeros_like(weight)) for weight in weights]

    def apply(
        self, gradients: Sequence[tf.Tensor], learning_rate: tf.Tensor, step: tf.Tensor
    ) -> None:
        """Updates the weights, then their averages; see `Adam.apply`."""
        super().apply(gradients, learning_rate, step)
        share = 1 - tf.minimum(self._decay, (step - 1) / (step + 9))
        for weight, average in zip(self._weights, self.averages, strict=True):
            tf.raw_ops.AssignAddVariableOp(
                resource=average.handle, value=share * (weight - average)
            )


def make_optimizer(weights: Sequence[tf.Variable], hparams: HParams) -> Adam:
    """Returns Adam, with moving averages if the hparams have a decay for them."""
    kind = AveragedAdam if hparams.ema_decay else Adam
    return kind(weights, hparams)
