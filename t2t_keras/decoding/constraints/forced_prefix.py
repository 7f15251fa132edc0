"""Forced prefixes: outputs begin with given tokens."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.constraint import StatelessConstraint
from t2t_keras.model.backend import Nest
from t2t_keras.text.tokenizer import PAD


class ForcedPrefix(StatelessConstraint):
    """Forces each output to begin with a prefix, which may differ between sentences."""

    def __init__(
        self, prefixes: tf.Tensor | Sequence[Sequence[int]], vocab_size: int
    ) -> None:
        """Takes the prefixes as ids [B, P] without EOS, padded with PAD."""
        self._prefixes = tf.convert_to_tensor(prefixes, tf.int32)
        self._vocab_size = vocab_size

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the prefixes with one more column of PAD, for all later positions."""
        del source, num_beams
        return tf.pad(self._prefixes, [[0, 0], [0, 1]], constant_values=PAD)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [B, 1, V] that allows the prefix's token, or all."""
        column = tf.minimum(position, tf.shape(state)[1] - 1)
        forced = tf.gather(state, column, axis=1)[:, None, None]  # [B, 1, 1]
        # In float32, so that a GPU compares them: see `allow_only_mask`.
        tokens = np.arange(self._vocab_size, dtype=np.float32)  # [V]
        return tf.logical_or(forced == PAD, tf.cast(forced, tf.float32) == tokens)
