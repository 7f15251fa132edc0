"""Reads records into padded batches of ids, in the background, with tf.data."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

import numpy as np
import tensorflow as tf

from t2t_keras.data.augmentation import Augmentation, planned_lengths
from t2t_keras.data.batch_plan import BatchPlan, batch_plan
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.records import RecordIndex, index_path
from t2t_keras.data.sources import repetitions
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem, Split
from t2t_keras.text.tokenizer import UNK, Tokenizer

_FEATURES = {
    "inputs": tf.io.RaggedFeature(tf.int64),
    "targets": tf.io.RaggedFeature(tf.int64),
}
_LINKS = {"links": tf.io.RaggedFeature(tf.int64)}
_FEW = 1000  # records that are read at a time, or in which links are looked for

# (example, step, row in the batch) -> example.
Augment = Callable[[bytes, int, int], bytes]


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The train split, and the batch of every step.

    Attributes:
        index: the index of the records.
        plan: the plan of the batches.
        largest_shape: (rows, S, T) of the batch that takes the most memory.
        aligned: whether a batch has a word alignment besides source and target.
        augmentation: changes the examples of a batch; None: they stay as they are.
    """

    index: RecordIndex
    plan: BatchPlan
    largest_shape: tuple[int, int, int]
    aligned: bool = False
    augmentation: Augmentation | None = None

    @classmethod
    def open(
        cls,
        problem: Problem,
        data_dir: str | Path,
        hparams: HParams,
        tokenizers: tuple[Tokenizer, Tokenizer],
        seed: int,
    ) -> Self:
        """Opens the data and plans the batches.

        Args:
            problem: the problem.
            data_dir: the data directory.
            hparams: the hyper-parameters of the training.
            tokenizers: the tokenizers of source and target.
            seed: the seed of the order of the batches and of the changes.

        Raises:
            UserError: there are no such data, `batch_tokens` is less than the longest
                example, or the data have no word alignments and
                `guided_alignment` needs them.
        """
        index = training_index(Path(data_dir), problem)
        aligned = hparams.guided_alignment > 0
        if aligned and not has_links(index):
            raise UserError(
                "hparams: guided_alignment needs word alignments, and the train data "
                f"of '{problem.data_name}' in {data_dir} have none; generate data "
                'with `t2t datagen --mixture FILE`, where FILE has alignment = "PATH", '
                "or set it to 0"
            )
        lengths = planned_lengths(index, hparams)
        plan = batch_plan(
            hparams.bucketing, *lengths, hparams.batch_tokens, seed, index.swapped
        )
        augmentation = None
        if hparams.changes_pairs:
            augmentation = Augmentation(hparams, tokenizers, index, seed, problem.tags)

        def numbers(shape: tuple[int, int, int]) -> int:
            """Returns about how many numbers the backward pass of a batch needs."""
            rows, source, target = shape
            d, heads, f = hparams.d_model, hparams.num_heads, hparams.d_ff
            encoder = source * (10 * d + f + heads * source)
            decoder = target * (15 * d + f + heads * (source + target))
            layers = hparams.num_layers * encoder + hparams.decoder_layers * decoder
            return rows * (layers + 2 * target * tokenizers[1].vocab_size)

        return cls(index, plan, plan.largest_shape(numbers), aligned, augmentation)

    def batches(
        self, steps: range, num_replicas: int, micro_batches: int, own: range
    ) -> tf.data.Dataset:
        """Returns the batches of some steps, see `training_batches`."""
        return training_batches(
            self.index,
            self.plan,
            steps,
            num_replicas,
            micro_batches=micro_batches,
            own=own,
            aligned=self.aligned,
            augment=self.augmentation,
        )


def training_index(data_dir: Path, problem: Problem) -> RecordIndex:
    """Opens the training examples; those of a mixture occur as its shares demand.

    Raises:
        UserError: the data are absent, incomplete or damaged.
    """
    name = problem.data_name
    manifest = Manifest.open(data_dir, name)
    index = manifest.open_index(data_dir, "train", problem.reverse)
    corpora = manifest.corpora.get("train")
    if not corpora:
        return index
    if index.corpus is None:
        raise UserError(
            f"{index_path(data_dir, name, 'train')} does not belong to the data; copy "
            "the directory again, or generate the data again"
        )
    shares = [record["share"] for record in corpora.values()]
    counts = repetitions(index.corpus, shares)
    return index if (counts == 1).all() else index.repeated(counts)


def training_batches(
    index: RecordIndex,
    plan: BatchPlan,
    steps: range,
    num_replicas: int = 1,
    *,
    micro_batches: int = 1,
    own: range | None = None,
    aligned: bool = False,
    augment: Augment | None = None,
) -> tf.data.Dataset:
    """Returns the batches of some steps, in their order.

    Each batch is one element for each replica, in order: an equal number of rows, of
    which the last ones may be padding. The examples of a step are therefore the same
    for any number of replicas and processes; a process reads only the records of its
    own replicas.

    Args:
        index: the index of the records.
        plan: the plan that determines the records of each step.
        steps: the steps, beginning with 0 or with the first step of a resumed run.
        num_replicas: number of replicas of all processes.
        micro_batches: number of micro-batches of each replica; its rows are divisible
            by it.
        own: the replicas of this process; None for all.
        aligned: whether a batch also has an alignment, see `_alignment`.
        augment: changes an example, given the step and its row in the batch; None: no
            example is changed.

    Returns:
        A dataset of (source [rows, S], target [rows, T]), int32, or of (source, target,
        alignment [rows, T, S]).
    """
    own = range(num_replicas) if own is None else own
    batches = _batches(
        index, steps, plan, num_replicas, micro_batches, own, aligned, augment
    )

    def split(*batch: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(
            tuple(
                tf.reshape(part, [len(own), -1, *tf.unstack(tf.shape(part)[1:])])
                for part in batch
            )
        )

    return batches.flat_map(split).prefetch(4 * len(own))


def ordered_batches(index: RecordIndex, batch_tokens: int) -> tf.data.Dataset:
    """Returns all records once, in batches of similar length: for evaluation.

    Returns:
        A dataset of (source [rows, S], target [rows, T]), int32.
    """
    lengths = index.source_length, index.target_length
    plan = BatchPlan(*lengths, batch_tokens, seed=0, swapped=index.swapped)
    return _batches(index, range(len(plan)), plan).prefetch(4)


def has_links(index: RecordIndex) -> bool:
    """Returns whether records have the links of word alignments: any of the first."""
    payloads = index.read(range(min(len(index), _FEW)))
    return bool(tf.size(tf.io.parse_example(payloads, _LINKS)["links"].values))


def read_pairs(
    index: RecordIndex, records: Iterable[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields (source ids, target ids) of some records, each ending in EOS."""
    rest = iter(records)
    while chunk := list(itertools.islice(rest, _FEW)):
        examples = tf.io.parse_example(index.read(chunk), _FEATURES)
        ids = (examples[name].to_list() for name in index.features)
        yield from zip(*ids, strict=True)


def source_texts(
    data_dir: Path, problem: Problem, tokenizer: Tokenizer, count: int
) -> list[str]:
    """Returns sources of the dev data, or else of the training data.

    If the data are absent, they are random sequences of tokens.

    Args:
        data_dir: the data directory.
        problem: the problem.
        tokenizer: the tokenizer of the sources.
        count: the number of sources; there are fewer if the data have fewer.
    """
    splits: tuple[Split, ...] = ("dev", "train")
    for split in splits:
        with contextlib.suppress(UserError):
            manifest = Manifest.open(data_dir, problem.data_name)
            index = manifest.open_index(data_dir, split, problem.reverse)
            every = max(1, len(index) // max(1, count))
            records = range(0, len(index), every)[:count]
            return [tokenizer.decode(ids) for ids, _ in read_pairs(index, records)]
    random = np.random.default_rng(0)
    ids = random.integers(UNK + 1, tokenizer.vocab_size, (count, 12))
    return [tokenizer.decode(row) for row in ids.tolist()]


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


def rows_each(rows: int, num_replicas: int, micro_batches: int = 1) -> int:
    """Returns the number of rows of each replica, of which some may be padding.

    All replicas and all micro-batches have the same number of rows.
    """
    return micro_batches * -(-rows // (num_replicas * micro_batches))


def rows_per_replica(
    ids: tf.Tensor, num_replicas: int, micro_batches: int = 1
) -> tf.Tensor:
    """Pads int [rows, T] with rows of zeros to [num_replicas, `rows_each`, T]."""
    rows, length = tf.unstack(tf.shape(ids))
    each = rows_each(rows, num_replicas, micro_batches)
    ids = tf.pad(ids, [[0, each * num_replicas - rows], [0, 0]])
    return tf.reshape(ids, [num_replicas, each, length])


def _batches(
    index: RecordIndex,
    steps: range,
    plan: BatchPlan,
    num_replicas: int = 1,
    micro_batches: int = 1,
    own: range = range(1),
    aligned: bool = False,
    augment: Augment | None = None,
) -> tf.data.Dataset:
    """Reads and pads the batch of every step.

    Args:
        index: the index of the records.
        steps: the steps.
        plan: the plan that determines the records of each step.
        num_replicas: see `training_batches`, as are the other arguments.
        micro_batches: see `training_batches`.
        own: the replicas whose rows are read.
        aligned: see `training_batches`.
        augment: see `training_batches`.
    """
    features = _FEATURES | _LINKS if aligned else _FEATURES

    def read(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        records = plan.records(int(step))
        rows, *lengths = plan.shape(records)
        each = rows_each(rows, num_replicas, micro_batches)
        first = own.start * each
        # A part of a batch is padded to the length of the whole batch.
        shape = np.array([len(own) * each, *lengths], np.int64)
        payloads = index.read(records[first : own.stop * each])
        if augment:
            numbered = enumerate(payloads, start=first)
            payloads = [augment(payload, int(step), row) for row, payload in numbered]
        return np.array(payloads, dtype=object), shape

    def parse(step: tf.Tensor) -> tuple[tf.Tensor, ...]:
        payloads, shape = tf.numpy_function(
            read,
            [step],
            [tf.string, tf.int64],
            stateful=False,  # else deterministic operations would disable `prefetch`
        )
        example = tf.io.parse_example(tf.ensure_shape(payloads, [None]), features)
        rows, *lengths = tf.unstack(tf.ensure_shape(shape, [3]))
        sides = [
            tf.cast(example[name].to_tensor(shape=tf.stack([rows, length])), tf.int32)
            for name, length in zip(index.features, lengths, strict=True)
        ]
        if aligned:
            source, target = sides
            sides.append(_alignment(example["links"], source, target, index.swapped))
        return tuple(sides)

    return untuned(tf.data.Dataset.range(steps.start, steps.stop).map(parse))


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset for which TensorFlow does not tune numbers of threads.

    There is nothing to tune in datasets without parallel stages, and an iterator that
    is tuned may take 20 seconds to close.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _alignment(
    links: tf.RaggedTensor, source: tf.Tensor, target: tf.Tensor, swapped: bool
) -> tf.Tensor:
    """Returns what guided alignment teaches, float32 [rows, T, S].

    In the row of a target token that is linked to n source tokens, each of these has
    the weight 1 / n; all other weights are 0.

    Args:
        links: positions by record, see `records.example`.
        source: ids [rows, S]
        target: ids [rows, T]
        swapped: see `RecordIndex`.
    """
    positions = tf.reshape(links.values, [-1, 2])  # of target and source token
    if swapped:
        positions = positions[:, ::-1]
    rows = tf.cast(links.value_rowids()[::2], tf.int64)
    places = tf.concat([rows[:, tf.newaxis], positions], axis=1)
    shape = tf.concat([tf.shape(target), tf.shape(source)[1:]], axis=0)
    ones = tf.ones([tf.shape(places)[0]])
    counts = tf.scatter_nd(places, ones, tf.cast(shape, tf.int64))
    return tf.math.divide_no_nan(counts, tf.reduce_sum(counts, 2, keepdims=True))
