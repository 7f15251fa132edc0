"""Minimum length: no output has fewer tokens."""

import tensorflow as tf

from t2t_keras.decoding.constraint import StatelessConstraint, allow_only_mask
from t2t_keras.model.backend import Nest
from t2t_keras.text.tokenizer import EOS


class MinimumLength(StatelessConstraint):
    """Excludes EOS until an output has `length` tokens."""

    def __init__(self, length: int | tf.Tensor, vocab_size: int) -> None:
        self._length = length
        self._vocab_size = vocab_size

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [V] that excludes EOS, or nothing."""
        del state
        is_eos = allow_only_mask(EOS, self._vocab_size)  # [V]
        return tf.logical_or(~is_eos, position >= self._length)
