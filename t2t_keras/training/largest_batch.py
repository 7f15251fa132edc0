"""A batch of the largest shape, to see whether it fits into memory."""

import tensorflow as tf

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.pipeline import rows_per_replica
from t2t_keras.training.strategy import distribute, own_replicas


def largest_shape(plan: BatchPlan, reverse: bool = False) -> tuple[int, int, int]:
    """Returns (rows, source length, target length) of the largest batch.

    Args:
        plan: of the batches.
        reverse: whether the problem swaps the two sides.
    """
    rows, source, target = plan.largest_shape()
    return (rows, target, source) if reverse else (rows, source, target)


def synthetic_batch(
    strategy: tf.distribute.Strategy,
    shape: tuple[int, int, int],
    micro_batches: int = 1,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a distributed batch (source [rows, S], target [rows, T]) of one id.

    Args:
        strategy: over whose replicas the rows are spread.
        shape: (rows, S, T).
        micro_batches: of each replica.
    """
    rows, *lengths = shape
    own = own_replicas(strategy)
    sides = [
        rows_per_replica(
            tf.fill([rows, length], 2), strategy.num_replicas_in_sync, micro_batches
        )[own.start : own.stop]
        for length in lengths
    ]
    parts = tf.data.Dataset.from_tensor_slices(tuple(sides))
    (batch,) = distribute(strategy, parts)
    return batch
