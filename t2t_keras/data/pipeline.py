"""From records to padded batches of ids, in the background, by tf.data."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.data.batch_plan import BatchPlan
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
    *,
    micro_batches: int = 1,
    own: range | None = None,
) -> tf.data.Dataset:
    """Returns the batches of some steps, in their order.

    Each batch comes as one element for each replica, in their order: an equal number
    of rows, the last ones filled with padding. What a step trains on is therefore the
    same for any number of replicas and of processes that they belong to; a process
    reads the records of its own replicas only.

    Args:
        index: where the records lie.
        plan: which of them make up a step's batch.
        steps: from 0, or from where a run goes on.
        num_replicas: that a batch is divided among, over all processes.
        reverse: swap the two sides.
        micro_batches: by which the rows of each replica are divisible.
        own: the replicas of this process; None: all.

    Returns:
        A dataset of (source [rows, S], target [rows, T]), int32.
    """
    own = range(num_replicas) if own is None else own

    def share(rows: int) -> tuple[range, int]:
        each = rows_each(rows, num_replicas, micro_batches)
        return range(own.start * each, min(own.stop * each, rows)), len(own) * each

    def split(source: tf.Tensor, target: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(
            tuple(
                tf.reshape(ids, [len(own), -1, tf.shape(ids)[1]])
                for ids in (source, target)
            )
        )

    batches = _batches(index, steps, plan, reverse, share)
    return batches.flat_map(split).prefetch(4 * len(own))


def ordered_batches(
    index: RecordIndex, batch_tokens: int, reverse: bool = False
) -> tf.data.Dataset:
    """Returns all records once, in batches of similar length: for evaluation.

    Returns:
        A dataset of (source [rows, S], target [rows, T]), int32.
    """
    plan = BatchPlan(index.source_length, index.target_length, batch_tokens, seed=0)
    return _batches(index, range(len(plan)), plan, reverse).prefetch(4)


def read_pairs(index: RecordIndex, records: Iterable[int]) -> Iterator[Pair]:
    """Yields (source ids, target ids) of some records, each ending in EOS."""
    for payload in index.read(list(records)):
        example = tf.io.parse_single_example(payload, _FEATURES)
        yield tuple(example[name].numpy().tolist() for name in _FEATURES)


def elements(dataset: Iterable[Any], index: RecordIndex) -> Iterator[Any]:
    """Yields the elements of a dataset that reads from an index.

    Args:
        dataset: what a function above returns, perhaps distributed over replicas.
        index: the one that it reads from.

    Raises:
        UserError: a record is damaged, see `RecordIndex.read`.
    """
    try:
        yield from dataset
    except tf.errors.OpError:
        if index.damage:
            raise index.damage[0] from None
        raise


def rows_each(rows: int, num_replicas: int, micro_batches: int = 1) -> int:
    """Returns the rows of each replica, of which the last ones may be padding.

    Every replica has the same number of them, and every one of its micro-batches.
    """
    return micro_batches * -(-rows // (num_replicas * micro_batches))


def rows_per_replica(
    ids: tf.Tensor, num_replicas: int, micro_batches: int = 1
) -> tf.Tensor:
    """[rows, T] -> [num_replicas, `rows_each`, T], filled with zeros."""
    rows, length = tf.unstack(tf.shape(ids))
    each = rows_each(rows, num_replicas, micro_batches)
    ids = tf.pad(ids, [[0, each * num_replicas - rows], [0, 0]])
    return tf.reshape(ids, [num_replicas, each, length])


def _batches(
    index: RecordIndex,
    steps: range,
    plan: BatchPlan,
    reverse: bool,
    share: Callable[[int], tuple[range, int]] = lambda rows: (range(rows), rows),
) -> tf.data.Dataset:
    """Reads and pads the batch of every step.

    Args:
        index: where the records lie.
        steps: which batches.
        plan: their records.
        reverse: swap the two sides.
        share: number of rows -> those to read, and how many to fill them up to.
    """

    def read(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        records = plan.records(int(step))
        own, rows = share(len(records))
        # Whoever reads a part of a batch pads it to the length of the whole.
        lengths = (index.source_length, index.target_length)
        shape = np.array([rows, *(side[records].max() for side in lengths)], np.int64)
        payloads = index.read(records[own.start : own.stop])
        return np.array(payloads, dtype=object), shape

    def parse(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        payloads, shape = tf.numpy_function(read, [step], [tf.string, tf.int64])
        example = tf.io.parse_example(tf.ensure_shape(payloads, [None]), _FEATURES)
        rows, *lengths = tf.unstack(tf.ensure_shape(shape, [3]))
        sides = [
            tf.cast(example[name].to_tensor(shape=tf.stack([rows, length])), tf.int32)
            for name, length in zip(_FEATURES, lengths, strict=True)
        ]
        source, target = reversed(sides) if reverse else sides
        return source, target

    return tf.data.Dataset.range(steps.start, steps.stop).map(parse)
