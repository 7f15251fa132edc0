"""Helpers of the tokenizers that run in the TensorFlow graph."""

import tensorflow as tf

from t2t_keras.text.tokenizer import EOS, PAD

# String operations do not run on accelerators, and a table must be read on its device.
CPU = "/device:CPU:0"


def text_ids(ids: tf.Tensor, vocab_size: int) -> tf.RaggedTensor:
    """Selects from ids [B, T] as `tokenizer.text_ids` does."""
    ids = tf.cast(ids, tf.int32)
    ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
    return tf.ragged.boolean_mask(ids, ~ended & (ids > PAD) & (ids < vocab_size))


def text_pieces(ids: tf.Tensor, pieces: tf.Tensor) -> tf.RaggedTensor:
    """Returns the pieces, strings [B, (T)], of the `text_ids` of ids [B, T].

    The pieces of the vocabulary are strings [V].
    """
    selected = text_ids(ids, pieces.shape[0])
    return tf.ragged.map_flat_values(lambda flat: tf.gather(pieces, flat), selected)
