"""Adam (5.3), with one fused operation for each variable."""

from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.hparam import HParams


class Adam:
    """Adam as the authors' code applies it.

    With t counted from 1: w -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) +
    epsilon). Create it in the scope of the strategy and apply it in each replica, with
    the same gradients everywhere: every replica updates its own copy.
    """

    def __init__(self, weights: Sequence[tf.Variable], hparams: HParams) -> None:
        self._weights = weights
        self._beta1 = hparams.adam_beta1
        self._beta2 = hparams.adam_beta2
        self._epsilon = hparams.adam_epsilon
        self.first_moments = [tf.Variable(tf.zeros_like(w)) for w in weights]
        self.second_moments = [tf.Variable(tf.zeros_like(w)) for w in weights]

    def apply(
        self, gradients: Sequence[tf.Tensor], learning_rate: tf.Tensor, step: tf.Tensor
    ) -> None:
        """Updates the weights, in replica context.

        Args:
            gradients: one for each weight, dense.
            learning_rate: float32 scalar.
            step: float32 scalar, of this update, counted from 1.
        """
        slots = zip(
            self._weights,
            self.first_moments,
            self.second_moments,
            gradients,
            strict=True,
        )
        for weight, first, second, gradient in slots:
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=self._beta1**step,
                beta2_power=self._beta2**step,
                lr=learning_rate,
                beta1=self._beta1,
                beta2=self._beta2,
                epsilon=self._epsilon,
                grad=gradient,
            )
