"""What the tokenizers in the TensorFlow graph have in common."""

import tensorflow as tf

from t2t_keras.text.tokenizer import EOS, PAD

# No string operation runs on an accelerator, and a table may be read only where it is.
CPU = "/device:CPU:0"


def text_ids(ids: tf.Tensor, vocab_size: int) -> tf.RaggedTensor:
    """Keeps of ids [B, T] those that stand for text, as `tokenizer.text_ids` does."""
    ids = tf.cast(ids, tf.int32)
    ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
    return tf.ragged.boolean_mask(ids, ~ended & (ids > PAD) & (ids < vocab_size))
