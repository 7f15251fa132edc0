"""Reads records into padded batches of ids, in the background, with tf.data."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.guided_alignment import LINKS, alignment_weights
from t2t_keras.data.packed_rows import packed_batch
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.sides import SIDES

FEATURES = {
    "inputs": tf.io.RaggedFeature(tf.int64),
    "targets": tf.io.RaggedFeature(tf.int64),
}
# The ids "source" [rows, S] and "target" [rows, T], int32, padded with 0. With packed
# rows, "source_segments", "source_positions", "target_segments" and "target_positions"
# of the same shapes: a segment is 1 + the number of the pair in the batch of a step,
# over all replicas, and 0 in padding; positions begin with 0 in each pair. And perhaps
# the "alignment" [rows, T, S], float32, see `alignment_weights`.
Batch = dict[str, tf.Tensor]
# (example, step, number of the pair in the batch) -> example.
Augment = Callable[[bytes, int, int], bytes]


def training_batches(
    index: RecordIndex,
    plan: BatchPlan,
    steps: range,
    num_replicas: int = 1,
    *,
    micro_batches: int = 1,
    local_replicas: range | None = None,
    aligned: bool = False,
    augment: Augment | None = None,
) -> tf.data.Dataset:
    """Returns the batches of some steps, in their order.

    A batch becomes one element for each replica, in order, with equal numbers of rows;
    the last rows may be padding. So the examples of a step are the same for any number
    of replicas and processes. A process reads only the records of its replicas.

    Args:
        index: the index of the records.
        plan: the plan that determines the records of each step.
        steps: the steps, beginning with 0 or with the first step of a resumed run.
        num_replicas: number of replicas of all processes.
        micro_batches: number of micro-batches of each replica; its rows are divisible
            by it.
        local_replicas: the replicas of this process; None for all.
        aligned: whether a batch also has an alignment, see `alignment_weights`.
        augment: changes an example, given the step and its number in the batch; None:
            no example is changed.

    Returns:
        A dataset of `Batch`es, with the elements of `batch_signature`.
    """
    if local_replicas is None:
        local_replicas = range(num_replicas)
    reader = _BatchReader(
        index, plan, num_replicas, micro_batches, local_replicas, aligned, augment
    )

    def split(batch: Batch) -> tf.data.Dataset:
        parts = {}
        for name, rows in batch.items():
            shape = [len(local_replicas), -1, *tf.unstack(tf.shape(rows)[1:])]
            parts[name] = tf.reshape(rows, shape)
        return tf.data.Dataset.from_tensor_slices(parts)

    return reader.batches(steps).flat_map(split).prefetch(4 * len(local_replicas))


def ordered_batches(index: RecordIndex, batch_tokens: int) -> tf.data.Dataset:
    """Returns all records once, in batches of similar length: for evaluation.

    Returns:
        A dataset of `Batch`es.
    """
    lengths = index.source_length, index.target_length
    plan = BatchPlan(*lengths, batch_tokens, seed=0, swapped=index.swapped)
    return _BatchReader(index, plan).batches(range(len(plan))).prefetch(4)


@contextlib.contextmanager
def damage_named(index: RecordIndex) -> Iterator[None]:
    """Explains what TensorFlow raises when a damaged record is read.

    Args:
        index: the index that datasets read from inside of the `with` block.

    Raises:
        UserError: a record is damaged, see `RecordIndex.read`.
    """
    try:
        yield
    except tf.errors.OpError:
        if index.damage:
            raise index.damage[0] from None
        raise


def batch_signature(
    aligned: bool = False, packed: bool = False
) -> dict[str, tf.TensorSpec]:
    """Returns the type of a `Batch`, whose arrays may have any shape.

    Args:
        aligned: whether a batch also has an alignment.
        packed: whether rows may hold several pairs.
    """
    ids = tf.TensorSpec([None, None], tf.int32)
    signature: dict[str, tf.TensorSpec] = {}
    for side in SIDES:
        signature[side] = ids
        if packed:
            signature |= {f"{side}_segments": ids, f"{side}_positions": ids}
    if aligned:
        signature["alignment"] = tf.TensorSpec([None, None, None], tf.float32)
    return signature


def rows_each(rows: int, num_replicas: int, micro_batches: int = 1) -> int:
    """Returns the number of rows of each replica, padding included.

    All replicas and all micro-batches have the same number of rows.
    """
    return micro_batches * -(-rows // (num_replicas * micro_batches))


def rows_per_replica(
    ids: tf.Tensor, num_replicas: int, micro_batches: int = 1
) -> tf.Tensor:
    """Pads int [rows, T] with rows of zeros to [num_replicas, `rows_each`, T]."""
    rows, length = tf.unstack(tf.shape(ids))
    padded_rows = rows_each(rows, num_replicas, micro_batches)
    ids = tf.pad(ids, [[0, padded_rows * num_replicas - rows], [0, 0]])
    return tf.reshape(ids, [num_replicas, padded_rows, length])


@dataclasses.dataclass(frozen=True)
class _BatchReader:
    """Reads the batches of a plan; the attributes are arguments of `training_batches`.

    By default it reads all rows of a batch, as one replica does.
    """

    index: RecordIndex
    plan: BatchPlan
    num_replicas: int = 1
    micro_batches: int = 1
    local_replicas: range = range(1)
    aligned: bool = False
    augment: Augment | None = None

    def batches(self, steps: range) -> tf.data.Dataset:
        """Returns the batch of every step, with the rows of the local replicas."""
        return untuned(tf.data.Dataset.range(steps.start, steps.stop).map(self._batch))

    def _batch(self, step: tf.Tensor) -> Batch:
        """Parses and pads the records of a step; the graph of `batches`."""
        features = FEATURES | LINKS if self.aligned else FEATURES
        payloads, rows, pair_ids, shape = tf.numpy_function(
            self._read,
            [step],
            [tf.string, tf.int64, tf.int64, tf.int64],
            stateful=False,  # else deterministic operations would disable `prefetch`
        )
        example = tf.io.parse_example(tf.ensure_shape(payloads, [None]), features)
        ids = (example[self.index.features[0]], example[self.index.features[1]])
        origins = None
        if self.plan.packs_rows:
            batch, origins = packed_batch(ids, rows, pair_ids + 1, shape)
        else:
            batch = _padded_batch(ids, shape)
        if self.aligned:
            batch["alignment"] = alignment_weights(
                example["links"],
                batch["source"],
                batch["target"],
                self.index.swapped,
                origins,
            )
        return batch

    def _read(
        self, step: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns the records of the local rows of a step, N of them.

        Returns:
            The records [N], strings; the row of each of them among the local rows, [N];
            its number in the whole batch, [N]; and the local rows, S and T, [3]. The
            last three are int64.
        """
        records = self.plan.records(int(step))
        rows = self.plan.rows(int(step))
        num_rows, *lengths = self.plan.shape(records)
        replica_rows = rows_each(num_rows, self.num_replicas, self.micro_batches)
        first_row = self.local_replicas.start * replica_rows
        stop_row = self.local_replicas.stop * replica_rows
        start, stop = np.searchsorted(rows, [first_row, stop_row]).tolist()
        # A part of a batch is padded to the length of the whole batch.
        shape = np.array([stop_row - first_row, *lengths], np.int64)
        payloads = self.index.read(records[start:stop])
        if self.augment:
            numbered = enumerate(payloads, start=start)
            payloads = [self.augment(payload, int(step), n) for n, payload in numbered]
        row = rows[start:stop].astype(np.int64) - first_row
        pair_ids = np.arange(start, stop, dtype=np.int64)
        return np.array(payloads, dtype=object), row, pair_ids, shape


def _padded_batch(
    ids: tuple[tf.RaggedTensor, tf.RaggedTensor], shape: tf.Tensor
) -> Batch:
    """Returns source and target, padded to the rows, S and T in `shape`, int64 [3]."""
    num_rows, *lengths = tf.unstack(tf.ensure_shape(shape, [3]))
    batch: Batch = {}
    for side, of_side, length in zip(SIDES, ids, lengths, strict=True):
        padded = of_side.to_tensor(shape=tf.stack([num_rows, length]))
        batch[side] = tf.cast(padded, tf.int32)
    return batch


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset for which TensorFlow does not tune numbers of threads.

    There is nothing to tune in datasets without parallel stages, and an iterator that
    is tuned may take 20 seconds to close.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
