"""Blocks of values: only those with the largest maxima are searched.

On a CPU this takes a quarter of the time of `tf.math.top_k` for 32,000 values.
"""

import tensorflow as tf

BLOCK_SIZE = 64


def divide(values: tf.Tensor, fill: float | bool) -> tf.Tensor:
    """Returns values [..., V] in blocks [..., blocks, 64], the last one filled up."""
    values = tf.convert_to_tensor(values)
    size = values.shape[-1]
    *axes, _ = tf.unstack(tf.shape(values))
    if size % BLOCK_SIZE:
        padding = tf.fill([*axes, -size % BLOCK_SIZE], tf.cast(fill, values.dtype))
        values = tf.concat([values, padding], axis=-1)
    return tf.reshape(values, [*axes, -(-size // BLOCK_SIZE), BLOCK_SIZE])


def first_of_largest(values: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """Returns the indices [B, k] of the k largest values [B, N], in ascending order.

    They are float32: a GPU computes with int32 on the host. An index's place is the
    number of smaller ones: counting is one kernel on a GPU, sorting two.
    """
    indices = tf.math.top_k(values, k, sorted=False).indices  # [B, k]
    indices = tf.cast(indices, tf.float32)
    row = tf.expand_dims(indices, 1)  # [B, 1, k]; LiteRT cannot index by None
    # Entry j of row i: whether the j-th index is smaller than the i-th.
    is_smaller = row < tf.expand_dims(indices, 2)  # [B, k, k]
    ranks = tf.reduce_sum(tf.cast(is_smaller, tf.float32), axis=2)  # [B, k]
    rank_of_row = tf.expand_dims(tf.cast(tf.range(k), tf.float32), 1)  # [k, 1]
    is_rank = rank_of_row == tf.expand_dims(ranks, 1)  # [B, k, k]
    return tf.reduce_sum(tf.where(is_rank, row, 0.0), axis=2)
