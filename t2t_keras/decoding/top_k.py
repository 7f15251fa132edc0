"""The k largest of the logits, faster than `tf.math.top_k` on a CPU."""

import tensorflow as tf

from t2t_keras.decoding.hypotheses import NEG_INF

_BLOCK_SIZE = 64


def top_k(values: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k largest values of each row, in order, and their indices.

    Each row is divided into blocks. The k largest values are in the k blocks with the
    largest maxima, so only these blocks are searched. On a CPU this takes half the time
    of `tf.math.top_k` for 8,000 values, and a quarter for 32,000. Equal values keep
    their order, as in `tf.math.top_k`.

    Args:
        values: [B, K, V], float, V known.
        k: scalar, at most V.

    Returns:
        The values [B, K, k] and their int32 indices [B, K, k].
    """
    batch, beams = tf.unstack(tf.shape(values)[:2])
    size = values.shape[2]
    rows = tf.reshape(values, [batch * beams, size])  # [B * K, V]
    padding = [[0, 0], [0, -size % _BLOCK_SIZE]]
    padded = tf.pad(rows, padding, constant_values=NEG_INF)
    blocks = tf.reshape(padded, [batch * beams, -1, _BLOCK_SIZE])  # [B * K, blocks, 64]
    maxima = tf.reduce_max(blocks, axis=2)  # [B * K, blocks]
    num_blocks = tf.minimum(k, tf.shape(maxima)[1])
    top_blocks = tf.math.top_k(maxima, num_blocks, sorted=False).indices
    top_blocks = tf.sort(top_blocks, axis=1)  # [B * K, num_blocks]
    searched = tf.gather(blocks, top_blocks, batch_dims=1)
    searched = tf.reshape(searched, [batch * beams, -1])  # [B * K, num_blocks * 64]
    largest, offsets = tf.math.top_k(searched, k)  # [B * K, k]
    starts = tf.gather(top_blocks, offsets // _BLOCK_SIZE, batch_dims=1) * _BLOCK_SIZE
    indices = starts + offsets % _BLOCK_SIZE
    shape = [batch, beams, k]
    return tf.reshape(largest, shape), tf.reshape(indices, shape)
