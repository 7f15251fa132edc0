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
    if size % _BLOCK_SIZE:
        padding = tf.fill([batch * beams, -size % _BLOCK_SIZE], NEG_INF)
        rows = tf.concat([rows, padding], axis=1)
    blocks = tf.reshape(rows, [batch * beams, -1, _BLOCK_SIZE])  # [B * K, blocks, 64]
    maxima = tf.reduce_max(blocks, axis=2)  # [B * K, blocks]
    num_blocks = tf.minimum(k, tf.shape(maxima)[1])
    top_blocks = tf.math.top_k(maxima, num_blocks, sorted=False).indices
    # Indices are computed in float32: a GPU computes with int32 on the host.
    top_blocks = tf.sort(tf.cast(top_blocks, tf.float32), axis=1)
    # [B * K, num_blocks, 64]
    searched = tf.gather(blocks, tf.cast(top_blocks, tf.int32), batch_dims=1)
    searched = tf.reshape(searched, [batch * beams, -1])  # [B * K, num_blocks * 64]
    largest, offsets = tf.math.top_k(searched, k)  # [B * K, k]
    offsets = tf.cast(offsets, tf.float32)
    slots = tf.floor(offsets / _BLOCK_SIZE)
    block = tf.gather(top_blocks, tf.cast(slots, tf.int32), batch_dims=1)
    indices = (block - slots) * _BLOCK_SIZE + offsets  # [B * K, k]
    shape = [batch, beams, k]
    indices = tf.cast(tf.reshape(indices, shape), tf.int32)
    return tf.reshape(largest, shape), indices
