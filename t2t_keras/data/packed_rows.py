"""Rows of several pairs: their ids, and the segment and position of each token.

Shapes: P pairs, R rows, S and T tokens of a row on each side.
"""

import tensorflow as tf

from t2t_keras.data.sides import SIDES


def packed_batch(
    ids: tuple[tf.RaggedTensor, tf.RaggedTensor],
    rows: tf.Tensor,
    segments: tf.Tensor,
    shape: tf.Tensor,
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Joins pairs to rows, one after the other.

    Args:
        ids: source and target of each pair, int64 [P, (tokens)].
        rows: the row of each pair, ascending, int64 [P].
        segments: the number that the tokens of each pair get, int64 [P].
        shape: R, S and T, int64 [3].

    Returns:
        The ids of each side with their segments and positions, see `pipeline.Batch`;
        and the row of each pair with the positions in target and source where it
        begins, int64 [P, 3].
    """
    num_rows, *lengths = tf.unstack(tf.ensure_shape(shape, [3]))
    rows = tf.ensure_shape(rows, [None])
    segments = tf.ensure_shape(segments, [None])
    batch: dict[str, tf.Tensor] = {}
    origins = [rows]
    for side, of_side, length in zip(SIDES, ids, lengths, strict=True):
        of_side = of_side.with_row_splits_dtype(tf.int64)
        pair = of_side.value_rowids()  # of each token
        starts = of_side.row_starts()  # [P]
        columns = {
            side: of_side.values,
            f"{side}_segments": tf.gather(segments, pair),
            f"{side}_positions": tf.range(tf.size(pair, tf.int64))
            - tf.gather(starts, pair),
        }
        for name, values in columns.items():
            joined = tf.RaggedTensor.from_value_rowids(
                values, tf.gather(rows, pair), num_rows
            )
            padded = joined.to_tensor(shape=tf.stack([num_rows, length]))
            batch[name] = tf.cast(padded, tf.int32)
        row_starts = tf.gather(joined.row_starts(), rows)
        origins.insert(1, starts - row_starts)  # the target's first
    return batch, tf.stack(origins, axis=1)
