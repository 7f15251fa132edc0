"""Word alignments in batches, for guided alignment."""

import tensorflow as tf

from t2t_keras.data.record_index import RecordIndex

LINKS = {"links": tf.io.RaggedFeature(tf.int64)}
_EXAMINED = 1000  # records


def has_links(index: RecordIndex) -> bool:
    """Returns whether any of the first records has links of a word alignment."""
    payloads = index.read(range(min(len(index), _EXAMINED)))
    return bool(tf.size(tf.io.parse_example(payloads, LINKS)["links"].values))


def alignment_weights(
    links: tf.RaggedTensor,
    source: tf.Tensor,
    target: tf.Tensor,
    swapped: bool,
    origins: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns the attention that guided alignment teaches, float32 [rows, T, S].

    In the row of a target token that is linked to n source tokens, each of these has
    the weight 1 / n; all other weights are 0.

    Args:
        links: positions by pair, see `example`.
        source: ids [rows, S]
        target: ids [rows, T]
        swapped: see `RecordIndex`.
        origins: the row, and the positions in target and source, where a pair begins,
            int64 [pairs, 3]; None: each pair has its own row.
    """
    positions = tf.reshape(links.values, [-1, 2])  # of target and source token
    if swapped:
        positions = positions[:, ::-1]
    pairs = tf.cast(links.value_rowids()[::2], tf.int64)
    if origins is None:
        indices = tf.concat([pairs[:, tf.newaxis], positions], axis=1)
    else:
        indices = tf.pad(positions, [[0, 0], [1, 0]]) + tf.gather(origins, pairs)
    shape = tf.concat([tf.shape(target), tf.shape(source)[1:]], axis=0)
    ones = tf.ones([tf.shape(indices)[0]])
    counts = tf.scatter_nd(indices, ones, tf.cast(shape, tf.int64))
    return tf.math.divide_no_nan(counts, tf.reduce_sum(counts, 2, keepdims=True))
