"""The gradient of an embedding, summed in a way that XLA compiles well.

The gradient of a look-up has one row for each token, and the gradient of the matrix is
their sum by id: a scatter. On a GPU, XLA either adds up the rows in any order, so that
no two runs are equal, or one after the other, which takes 30 times as long as all the
rest of a training step. Here the rows are sorted by id and summed in pairs, pairs of
pairs and so on: in a fixed order, in float32, and as fast as memory allows.

Letters for shapes: N rows, D columns, V segments.
"""

import tensorflow as tf

# After so many levels of pairs, a node is the sum of 4,096 rows. So few are left that
# all of them are compared with every segment.
_LEVELS = 12
_SEARCH_STEPS = 31  # bits of a row's number


def segment_sums(values: tf.Tensor, ids: tf.Tensor, num_segments: int) -> tf.Tensor:
    """Returns the sums [V, D] of the rows [N, D] with the same id, for compiled code.

    It computes what `tf.math.unsorted_segment_sum` does. The order of the additions
    depends on `ids` only.

    Args:
        values: [N, D]
        ids: integers [N], from 0 to `num_segments` - 1.
        num_segments: V
    """
    if values.shape[0] == 0:
        return tf.zeros([num_segments, values.shape[1]], values.dtype)
    order = tf.argsort(ids, stable=True)  # [N]
    bounds = _lower_bounds(tf.gather(ids, order), num_segments + 1)  # [V + 1]
    start = bounds[:-1]  # [V], segment v has the sorted rows start[v] ... stop[v] - 1
    stop = bounds[1:]  # [V]
    nodes = tf.gather(values, order)  # [N, D], sorted
    sums = tf.zeros([num_segments, values.shape[1]], values.dtype)  # [V, D]
    for _ in range(_LEVELS):
        # A node at an odd start, or the last one before an odd stop, has its sibling in
        # another segment. The others go up in pairs.
        is_odd = tf.logical_and(start % 2 == 1, start < stop)
        sums += _rows_where(is_odd, nodes, start)
        start += tf.cast(is_odd, start.dtype)
        is_odd = tf.logical_and(stop % 2 == 1, start < stop)
        stop -= tf.cast(is_odd, stop.dtype)
        sums += _rows_where(is_odd, nodes, stop)
        nodes = _pair_sums(nodes)  # [N / 2, D], [N / 4, D], ...
        start //= 2
        stop //= 2
    index = tf.range(tf.shape(nodes)[0])  # [N / 2^levels]
    is_inside = tf.logical_and(
        index >= start[:, tf.newaxis], index < stop[:, tf.newaxis]
    )  # [V, N / 2^levels]
    inside = tf.where(is_inside[:, :, tf.newaxis], nodes, 0.0)  # fused, not stored
    return sums + tf.reduce_sum(inside, axis=1)


def _lower_bounds(sorted_ids: tf.Tensor, count: int) -> tf.Tensor:
    """Returns how many of the ids [N] are less than 0, 1, ..., as int32 [count].

    It is a binary search; XLA compiles `tf.searchsorted` to N comparisons for each.
    """
    rows = tf.shape(sorted_ids)[0]
    values = tf.range(count, dtype=sorted_ids.dtype)
    bounds = tf.zeros([count], tf.int32)
    for bit in reversed(range(_SEARCH_STEPS)):
        # Written as a difference, because the sum may overflow.
        is_in_range = bounds <= rows - 2**bit
        probe = tf.where(is_in_range, bounds + (2**bit - 1), 0)
        is_less = tf.logical_and(is_in_range, tf.gather(sorted_ids, probe) < values)
        bounds += tf.where(is_less, 2**bit, 0)
    return bounds


def _rows_where(
    condition: tf.Tensor, matrix: tf.Tensor, indices: tf.Tensor
) -> tf.Tensor:
    """Returns matrix[indices], [V, D], with zeros where the condition is false."""
    rows = tf.gather(matrix, tf.where(condition, indices, 0))
    return tf.where(condition[:, tf.newaxis], rows, 0.0)


def _pair_sums(matrix: tf.Tensor) -> tf.Tensor:
    """Returns the sums of rows 0 and 1, 2 and 3, ...; an odd last row stays alone."""
    padded = tf.pad(matrix, [[0, tf.shape(matrix)[0] % 2], [0, 0]])
    pairs = tf.reshape(padded, [-1, 2, matrix.shape[1]])
    return pairs[:, 0] + pairs[:, 1]
