"""The largest batch is run once before the first step.

So a batch that does not fit into the memory of the devices fails at once, and not after
hours.
"""

import re
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from t2t_keras.data.pipeline import Batch, rows_per_replica
from t2t_keras.data.sides import SIDES
from t2t_keras.errors import UserError
from t2t_keras.training.strategy import distribute_batches, local_replicas
from t2t_keras.xla_cache import program_failure

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
    micro_batches: int = 1,
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
    micro_batches: int = 1,
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
