"""From records to padded batches of ids, in the background, by tf.data."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.data.batching import BatchPlan
from t2t_keras.data.records import RecordIndex

Pair = tuple[list[int], list[int]]

_FEATURES = {
    "inputs": tf.io.RaggedFeature(tf.int64),
    "targets": tf.io.RaggedFeature(tf.int64),
}


def training_batches(
    index: RecordIndex,
    plan: BatchPlan,
    steps: range,
    num_replicas: int = 1,
    reverse: bool = False,
) -> tf.data.Dataset:
    """Returns the batches of some steps, in their order.

    Each batch comes as one element for each replica, in their order: an equal number
    of rows, the last ones filled with padding. What a step trains on is therefore the
    same for any number of replicas.

    Args:
        index: where the records lie.
        plan: which of them make up a step's batch.
        steps: from 0, or from where a run goes on.
        num_replicas: the elements that a batch is split into.
        reverse: swap the two sides.

    Returns:
        A dataset of (source [rows, S], target [rows, T]), int32.
    """

    def split(source: tf.Tensor, target: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(
            tuple(rows_per_replica(side, num_replicas) for side in (source, target))
        )

    batches = _batches(index, steps, plan.records, reverse)
    return batches.flat_map(split).prefetch(4 * num_replicas)


def ordered_batches(
    index: RecordIndex, batch_tokens: int, reverse: bool = False
) -> tf.data.Dataset:
    """Returns all records once, in batches of similar length: for evaluation.

    Returns:
        A dataset of (source [rows, S], target [rows, T]), int32.
    """
    plan = BatchPlan(index.source_length, index.target_length, batch_tokens, seed=0)
    return _batches(index, range(len(plan)), plan.records, reverse).prefetch(4)


def read_pairs(index: RecordIndex, records: Iterable[int]) -> Iterator[Pair]:
    """Yields (source ids, target ids) of some records, each ending in EOS."""
    for payload in index.read(list(records)):
        example = tf.io.parse_single_example(payload, _FEATURES)
        yield tuple(example[name].numpy().tolist() for name in _FEATURES)


def _batches(
    index: RecordIndex,
    steps: range,
    records: Callable[[int], Iterable[int]],
    reverse: bool,
) -> tf.data.Dataset:
    """Reads and pads the batch of every step."""

    def read(step: np.ndarray) -> np.ndarray:
        return np.array(index.read(records(int(step))), dtype=object)

    def parse(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        payloads = tf.ensure_shape(tf.numpy_function(read, [step], tf.string), [None])
        example = tf.io.parse_example(payloads, _FEATURES)
        sides = [tf.cast(example[name].to_tensor(), tf.int32) for name in _FEATURES]
        source, target = reversed(sides) if reverse else sides
        return source, target

    return tf.data.Dataset.range(steps.start, steps.stop).map(parse)


def rows_per_replica(ids: tf.Tensor, num_replicas: int) -> tf.Tensor:
    """[rows, T] -> [num_replicas, ceil(rows / num_replicas), T], filled with zeros."""
    rows, length = tf.unstack(tf.shape(ids))
    each = -(-rows // num_replicas)
    ids = tf.pad(ids, [[0, each * num_replicas - rows], [0, 0]])
    return tf.reshape(ids, [num_replicas, each, length])
