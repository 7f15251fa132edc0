"""Checks before the first step: the largest batch, and packed pairs.

A batch that does not fit into the memory of the devices fails at once, and not after
hours.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from t2t_keras.data.pipeline import Batch, rows_per_replica
from t2t_keras.devices import program_failure
from t2t_keras.errors import UserError, first_line
from t2t_keras.model import Packing, Transformer
from t2t_keras.problem import SIDES
from t2t_keras.training.strategy import distribute_batches, local_replicas

# Messages of libraries, besides TensorFlow, when the device's memory is used up.
_OUT_OF_MEMORY = re.compile(
    "out of memory|CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)"
    "|CUDNN_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)|ncclUnhandledCudaError"
    "|unhandled cuda error",
    re.IGNORECASE,
)


def try_largest_batch(
    update: Callable[[Iterator[Batch]], object],
    strategy: tf.distribute.Strategy,
    shape: tuple[int, int, int],
    batch_tokens: int,
    signature: Mapping[str, tf.TensorSpec],
    micro_batches: int,
) -> str:
    """Runs the largest batch once; where it does not fit, tries halves of it.

    Args:
        update: runs an update by the next batch of an iterator and discards it.
        strategy: the strategy, whose replicas share the rows.
        shape: (rows, S, T) of the largest batch.
        batch_tokens: the budget of the batches, for the message.
        signature: the type of a batch, see `batch_signature`.
        micro_batches: number of micro-batches of each replica.

    Returns:
        A sentence about the memory that a GPU had in use; "" without GPUs.

    Raises:
        UserError: the batch does not fit; the message names a size that does.
    """
    rows, source, target = shape
    unit = "rows" if "source_segments" in signature else "pairs"
    batch = f"the largest batch, {rows} {unit} of {source} and {target} tokens,"
    # With several processes there is one try: the others would not repeat it.
    is_alone = not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    smallest = strategy.num_replicas_in_sync * micro_batches if is_alone else rows
    divisor = 1
    while rows // divisor >= min(smallest, rows):
        parts = (rows // divisor, source, target)
        batches = synthetic_batches(strategy, parts, signature, micro_batches)
        try:
            update(iter(batches))
        except tf.errors.OpError as error:
            if not is_out_of_memory(error):
                raise
            divisor *= 2
            continue
        if divisor == 1:
            return _peak() and f"{batch} fits: {_peak()}"
        remedy = (
            f"{parts[0]} such {unit} fit: lower batch_tokens to "
            f"{batch_tokens // divisor}, or give --accumulate {divisor * micro_batches}"
        )
        break
    else:
        remedy = "lower batch_tokens, or divide batches with --accumulate"
    raise UserError(
        f"batch_tokens {batch_tokens}: {batch} does not fit into the device's memory; "
        f"{remedy}"
    )


def synthetic_batches(
    strategy: tf.distribute.Strategy,
    shape: tuple[int, int, int],
    signature: Mapping[str, tf.TensorSpec],
    micro_batches: int,
) -> tf.distribute.DistributedDataset:
    """Returns one distributed batch of one id; arguments as in `try_largest_batch`.

    Where rows are packed, a row is one pair.
    """
    rows, *lengths = shape
    replicas = local_replicas(strategy)
    parts: Batch = {}
    for side, length in zip(SIDES, lengths, strict=True):
        ids = tf.fill([rows, length], 2)
        per_replica = rows_per_replica(
            ids, strategy.num_replicas_in_sync, micro_batches
        )
        parts[side] = per_replica[replicas.start : replicas.stop]
        positions = tf.broadcast_to(tf.range(length), parts[side].shape)
        parts[f"{side}_segments"] = tf.ones_like(positions)
        parts[f"{side}_positions"] = positions
    if "alignment" in signature:
        parts["alignment"] = tf.zeros([*parts["target"].shape, lengths[0]])
    batches = []
    for i in range(len(replicas)):
        batches.append({name: parts[name][i] for name in signature})
    return distribute_batches(strategy, lambda: batches, signature)


def is_out_of_memory(error: tf.errors.OpError) -> bool:
    """Returns whether the device's memory was too small, as cuBLAS or NCCL may say."""
    if program_failure(error):  # The disk may be full.
        return False
    is_exhausted = isinstance(error, tf.errors.ResourceExhaustedError)
    return is_exhausted or bool(_OUT_OF_MEMORY.search(error.message))


def _peak() -> str:
    """Returns the largest memory in use on a GPU so far; "" without GPUs."""
    peaks = []
    for gpu in tf.config.list_logical_devices("GPU"):
        name = gpu.name.removeprefix("/device:")
        info = tf.config.experimental.get_memory_info(name)
        peaks.append(info["peak"] / 1e9)
    return f"{max(peaks):.1f} GB of a GPU in use" if peaks else ""


_Floats: TypeAlias = NDArray[np.float32]
_Ids: TypeAlias = NDArray[np.int32]

# The lengths of three pairs, and the pairs in each packed row.
_LENGTHS = {"source": (3, 2, 5), "target": (4, 1, 3)}
_ROWS = ((2, 0), (1,))
# How far logits may differ, in standard deviations: bfloat16 has 1%, mixed pairs 30%.
_TOLERANCE = 0.1
# How far losses may differ, relative to them: mixed pairs differ by 0.5% and more.
_LOSS_TOLERANCE = 0.002


class PackedPairs(NamedTuple):
    """Random pairs, each in a separate row, and the same pairs in packed rows.

    Attributes:
        single: "source" [3, S] and "target" [3, T], a pair in each row.
        packed: the batch of packed rows.
        target_slices: the row and the columns of each pair's target in the packed rows.
    """

    single: dict[str, _Ids]
    packed: dict[str, _Ids]
    target_slices: dict[int, tuple[int, slice]]


def require_packing(model: Transformer) -> None:
    """Raises `UserError` unless a model supports packed rows, with separate pairs."""
    advice = "set the hyper-parameter bucketing=static, or see check_model"
    name = model.hparams.model
    try:
        comparisons = list(packed_and_single_logits(model))
        packed_loss, single_loss = packed_and_single_losses(model)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise UserError(
            f"model '{name}' fails with packed rows ({first_line(error)}): {advice}"
        ) from error
    for packed, single in comparisons:
        if np.max(np.abs(packed - single)) > _TOLERANCE * np.std(single):
            raise UserError(f"model '{name}' mixes the pairs of packed rows: {advice}")
    if abs(packed_loss - single_loss) > _LOSS_TOLERANCE * abs(single_loss):
        raise UserError(
            f"`training_losses` of model '{name}' mixes the pairs of packed rows: "
            f"{advice}"
        )


def packed_and_single_logits(
    model: Transformer, seed: _Ids | None = None
) -> Iterator[tuple[_Floats, _Floats]]:
    """Yields the logits [T, V] of random pairs in packed rows, and in separate rows.

    Args:
        model: the model.
        seed: integers [2], dropout seed.
    """
    pairs = _packed_pairs(model)
    single = np.array(model(pairs.single, seed=seed))  # [3, T, V]
    packing = Packing.from_batch(pairs.packed)
    source = pairs.packed["source"]
    target = pairs.packed["target"]
    states, _ = model.decoder_outputs(source, target, seed, packing)
    logits = np.array(model.logits(states))  # [2, T', V]
    for pair, (row, columns) in pairs.target_slices.items():
        packed_logits = logits[row, columns]
        yield packed_logits, single[pair, : len(packed_logits)]


def packed_and_single_losses(model: Transformer) -> tuple[float, float]:
    """Returns the training loss of random pairs in packed rows, and in separate rows.

    The dropout masks are the same.
    """
    single, packed, _ = _packed_pairs(model)
    seed = np.array([1, 2], np.int32)
    losses = []
    for batch in (packed, single):
        loss, _ = model.training_losses(
            batch["source"],
            batch["target"],
            seed,
            packing=Packing.from_batch(batch),
        )
        losses.append(float(loss))
    return losses[0], losses[1]


def _packed_pairs(model: Transformer) -> PackedPairs:
    """Returns random pairs of a model's vocabularies."""
    single = {}  # [3, T], a pair in each row
    batch: dict[str, _Ids] = {}
    target_slices = {}
    rng = np.random.default_rng(0)
    for side, lengths in _LENGTHS.items():
        is_token = np.arange(max(lengths)) < np.array(lengths)[:, None]  # [3, T]
        ids = rng.integers(2, _vocab_size(model), is_token.shape)  # without PAD and EOS
        single[side] = (ids * is_token).astype(np.int32)
        packed = np.zeros((3, len(_ROWS), sum(lengths)), np.int32)
        for row, pairs in enumerate(_ROWS):
            start = 0
            for pair in pairs:
                stop = start + lengths[pair]
                packed[0, row, start:stop] = ids[pair, : lengths[pair]]
                packed[1, row, start:stop] = pair + 1
                packed[2, row, start:stop] = np.arange(lengths[pair])
                # The target comes after the source, and replaces its place.
                target_slices[pair] = row, slice(start, stop)
                start = stop
        names = (side, f"{side}_segments", f"{side}_positions")
        batch |= dict(zip(names, packed, strict=True))
    return PackedPairs(single, batch, target_slices)


def _vocab_size(model: Transformer) -> int:
    """Returns the size of the smaller vocabulary."""
    if model.target_vocab_size is None:
        return model.source_vocab_size
    return min(model.source_vocab_size, model.target_vocab_size)
