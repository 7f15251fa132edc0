"""Adafactor, which tensor2tensor's later sets use, as an optimizer of `HParams`."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from t2t_keras.hparam import HParams
from t2t_keras.run.checkpoint import slot_name
from t2t_keras.training.optimizer_api import add_to, slots


class Adafactor:
    """Adafactor (Shazeer and Stern, 2018), with Keras's constants.

    There is no first moment, and the second moment of a matrix is the outer product of
    the means of its rows and of its columns: the state takes next to no memory. (Keras
    keeps the product as well, as large as the weights.) An update is as large as the
    weight, in root mean square, times the learning rate, which is at most step^-0.5.
    """

    _DECAY_EXPONENT = -0.8  # of the step; the decay of the second moment grows to 1
    _SQUARE_EPSILON = 1e-30  # added to squared gradients
    _SMALLEST_WEIGHT = 1e-3  # that an update is relative to
    _CLIP_THRESHOLD = 1.0  # on the root mean square of an update

    def __init__(self, weights: Mapping[str, tf.Variable], hparams: HParams) -> None:
        del hparams  # its constants are those of the article
        self._weights = weights
        matrices = {k: w for k, w in weights.items() if len(w.shape) >= 2}
        vectors = {k: w for k, w in weights.items() if k not in matrices}
        self.variables: Mapping[str, tf.Variable] = (
            slots("adafactor/rows", matrices, lambda s: s[:-1])
            | slots("adafactor/columns", matrices, lambda s: s[:-2] + s[-1:])
            | slots("adafactor/v", vectors)
        )

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        is_applied: tf.Tensor,
    ) -> None:
        """Updates the weights; see `Optimizer.apply`."""
        # The share of the new squared gradients.
        fresh = tf.where(is_applied, step**self._DECAY_EXPONENT, 0.0)
        rate = tf.where(is_applied, tf.minimum(learning_rate, step**-0.5), 0.0)
        for (name, weight), gradient in zip(
            self._weights.items(), gradients, strict=True
        ):
            update = gradient * self._inverse_root(name, gradient, fresh)
            update /= tf.maximum(1.0, _rms(update) / self._CLIP_THRESHOLD)
            size = tf.maximum(self._SMALLEST_WEIGHT, _rms(weight))
            add_to(weight, tf.math.multiply_no_nan(size * update, -rate))

    def _inverse_root(
        self, name: str, gradient: tf.Tensor, fresh: tf.Tensor
    ) -> tf.Tensor:
        """Updates a weight's second moment v and returns 1 / sqrt(v).

        The roots of both factors are taken before they are multiplied: the product of
        a row without gradients, of tokens that no batch had, is too small for float32.
        """
        square = tf.square(gradient) + self._SQUARE_EPSILON

        def averaged(kind: str, value: tf.Tensor) -> tf.Tensor:
            moment = self.variables[slot_name(kind, name)]
            add_to(moment, fresh * (value - moment))
            return moment.read_value()

        if len(gradient.shape) < 2:
            return tf.math.rsqrt(averaged("adafactor/v", square))
        rows = averaged("adafactor/rows", tf.reduce_mean(square, axis=-1))
        columns = averaged("adafactor/columns", tf.reduce_mean(square, axis=-2))
        rows /= tf.reduce_mean(rows, axis=-1, keepdims=True)
        return tf.math.rsqrt(rows)[..., :, None] * tf.math.rsqrt(columns)[..., None, :]


def _rms(x: tf.Tensor) -> tf.Tensor:
    """Returns the root mean square."""
    return tf.sqrt(tf.reduce_mean(tf.square(x)))
