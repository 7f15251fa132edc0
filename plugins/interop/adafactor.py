"""Adafactor, which tensor2tensor's later sets use, as an optimizer of `HParams`."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from t2t_keras.hparam import HParams
from t2t_keras.run.checkpoint import slot_name
from t2t_keras.training.optimizer import add_to, slots


class Adafactor:
    """Adafactor (Shazeer and Stern, 2018), with Keras's constants.

    There is no first moment, and the second moment of a matrix is the outer product of
    the means of its rows and columns, so the state needs hardly any memory. (Keras also
    stores the product, which is as large as the weights.) The root mean square of an
    update is that of the weight times the learning rate, which is at most step^-0.5.
    """

    # The second moment decays by 1 - step^-0.8.
    _DECAY_EXPONENT = -0.8
    # This is added to squared gradients.
    _SQUARE_EPSILON = 1e-30
    # An update is relative to the weight's root mean square, but at least to this.
    _MIN_WEIGHT_RMS = 1e-3
    # The root mean square of an update is clipped to this.
    _CLIP_THRESHOLD = 1.0

    def __init__(self, weights: Mapping[str, tf.Variable], hparams: HParams) -> None:
        # The constants are the article's, so no hyper-parameter is needed.
        del hparams
        self._weights = weights
        matrices: dict[str, tf.Variable] = {}
        vectors: dict[str, tf.Variable] = {}
        for name, weight in weights.items():
            group = matrices if len(weight.shape) >= 2 else vectors
            group[name] = weight
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
        # A skipped update changes neither weights nor moments.
        new_share = tf.where(is_applied, step**self._DECAY_EXPONENT, 0.0)
        rate = tf.where(is_applied, tf.minimum(learning_rate, step**-0.5), 0.0)
        for (name, weight), gradient in zip(
            self._weights.items(), gradients, strict=True
        ):
            update = gradient * self._inverse_root(name, gradient, new_share)
            update /= tf.maximum(1.0, _rms(update) / self._CLIP_THRESHOLD)
            size = tf.maximum(self._MIN_WEIGHT_RMS, _rms(weight))
            add_to(weight, tf.math.multiply_no_nan(size * update, -rate))

    def _inverse_root(
        self, name: str, gradient: tf.Tensor, new_share: tf.Tensor
    ) -> tf.Tensor:
        """Updates a weight's second moment v and returns 1 / sqrt(v)."""
        square = tf.square(gradient) + self._SQUARE_EPSILON

        def update_mean(slot: str, value: tf.Tensor) -> tf.Tensor:
            moment = self.variables[slot_name(slot, name)]
            add_to(moment, new_share * (value - moment))
            return moment.read_value()

        if len(gradient.shape) < 2:
            return tf.math.rsqrt(update_mean("adafactor/v", square))
        rows = update_mean("adafactor/rows", tf.reduce_mean(square, axis=-1))
        columns = update_mean("adafactor/columns", tf.reduce_mean(square, axis=-2))
        rows /= tf.reduce_mean(rows, axis=-1, keepdims=True)
        # The product of both means may be too small for float32, as in embedding rows
        # of tokens that no batch had, but the product of their inverse roots is not.
        return tf.math.rsqrt(rows)[..., :, None] * tf.math.rsqrt(columns)[..., None, :]


def _rms(x: tf.Tensor) -> tf.Tensor:
    """Returns the root mean square of all values."""
    return tf.sqrt(tf.reduce_mean(tf.square(x)))
