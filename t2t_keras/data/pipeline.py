"""Reads records into padded or packed batches, in the background, with tf.data.

Shapes: P pairs, R rows, S and T tokens of a row on each side.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.problem import SIDES

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


_CHUNK = 1000  # records that are read at a time


def read_pairs(
    index: RecordIndex, records: Iterable[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields (source ids, target ids) of some records; each side ends in EOS."""
    remaining = iter(records)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        examples = tf.io.parse_example(index.read(chunk), FEATURES)
        source_feature, target_feature = index.features
        sources = examples[source_feature].to_list()
        targets = examples[target_feature].to_list()
        yield from zip(sources, targets, strict=True)
