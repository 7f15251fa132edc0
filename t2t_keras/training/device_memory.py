"""Whether a training fits into memory: its largest batch, and the memory that is free.

On the CPU a batch that certainly does not fit is refused by arithmetic; anywhere the
largest batch is run once before the first step.
"""

import re
from collections.abc import Callable

import tensorflow as tf

from t2t_keras.data.pipeline import rows_per_replica
from t2t_keras.hparam import HParams
from t2t_keras.option import UserError
from t2t_keras.training.free_memory import free_memory
from t2t_keras.training.memory import memory_per_batch
from t2t_keras.training.parameters import count_parameters
from t2t_keras.training.strategy import distribute_pairs, own_replicas

# The share of `memory_per_batch`'s activations and logits. Measured, the peaks of
# processes, less what they have without a batch, were 0.98 to 1.16 times as much
# (float32, four shapes: mostly logits, attention weights or feed-forward layers).
_SURELY_TAKEN = 0.7


def synthetic_batches(
    strategy: tf.distribute.Strategy,
    shape: tuple[int, int, int],
    micro_batches: int = 1,
    aligned: bool = False,
) -> tf.distribute.DistributedDataset:
    """Returns one distributed batch (source [rows, S], target [rows, T]) of one id.

    Args:
        strategy: has the replicas that share the rows.
        shape: (rows, S, T).
        micro_batches: into how many each replica divides its rows.
        aligned: whether the batch also has an alignment, [rows, T, S], of zeros.
    """
    rows, *lengths = shape
    own = own_replicas(strategy)
    sides = [
        rows_per_replica(
            tf.fill([rows, length], 2), strategy.num_replicas_in_sync, micro_batches
        )[own.start : own.stop]
        for length in lengths
    ]
    if aligned:
        source, target = sides
        sides.append(tf.zeros([*target.shape, source.shape[2]]))
    return distribute_pairs(strategy, lambda: zip(*sides, strict=True), aligned)


def refuse_too_large(
    hparams: HParams,
    vocab_sizes: tuple[int, int | None],
    shape: tuple[int, int, int],
    parts: int,
) -> None:
    """Refuses a batch that certainly does not fit into the memory of the CPU.

    Without it the process would take memory until the system kills it.

    Args:
        hparams: the model's.
        vocab_sizes: as `count_parameters` takes them.
        shape: (rows, S, T) of the largest batch.
        parts: into which its rows are divided, replicas times micro-batches.

    Raises:
        UserError: the batch certainly takes more than what is free.
    """
    need = least_memory(hparams, vocab_sizes, shape, parts)
    free = free_memory()
    if need > free:
        reason = f"takes at least {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
        raise does_not_fit(hparams.batch_tokens, shape, reason)


# What libraries say when the device's memory is used up, besides TensorFlow itself.
_OUT_OF_MEMORY = re.compile(
    "out of memory|CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)"
    "|CUDNN_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)|ncclUnhandledCudaError"
    "|unhandled cuda error",
    re.IGNORECASE,
)


def is_out_of_memory(error: tf.errors.OpError) -> bool:
    """Returns whether the device's memory was too small: cuBLAS, cuDNN, NCCL, too."""
    is_exhausted = isinstance(error, tf.errors.ResourceExhaustedError)
    return is_exhausted or bool(_OUT_OF_MEMORY.search(error.message))


def does_not_fit(
    batch_tokens: int,
    shape: tuple[int, int, int],
    reason: str = "does not fit into the device's memory",
) -> UserError:
    """Returns the error for a largest batch, of (rows, S, T), that is too large."""
    rows, source, target = shape
    return UserError(
        f"batch_tokens {batch_tokens}: the largest batch, {rows} pairs of {source} and "
        f"{target} tokens, {reason}; lower batch_tokens, let --batch_tokens auto find "
        "what fits, or divide batches with --accumulate"
    )


def memory_of_shape(
    hparams: HParams, vocab_sizes: tuple[int, int | None]
) -> Callable[[tuple[int, int, int]], float]:
    """Returns a function that estimates what a batch of (rows, S, T) takes.

    It is for comparing shapes: both sides count with their mean length. Of two batches
    of as many tokens the one of longer sentences takes more, for attention weights.
    """

    def memory(shape: tuple[int, int, int]) -> float:
        rows, source, target = shape
        length = (source + target) // 2
        sized = hparams.override(batch_tokens=max(rows * length, 1))
        classes = vocab_sizes[1] or vocab_sizes[0]
        return memory_per_batch(sized, 0, classes, length, replicas=1)["total"]

    return memory


def least_memory(
    hparams: HParams,
    vocab_sizes: tuple[int, int | None],
    shape: tuple[int, int, int],
    parts: int = 1,
) -> float:
    """Returns the bytes that an update certainly takes; see `refuse_too_large`."""
    rows, source, target = shape
    # Both sides of the shorter length, and one replica: to stay below the truth.
    length = min(source, target)
    parameters = count_parameters(hparams, *vocab_sizes)["total"]
    memory = memory_per_batch(
        hparams.override(batch_tokens=rows * length),
        parameters,
        vocab_sizes[1] or vocab_sizes[0],
        length,
        replicas=parts,
    )
    state = memory["weights"] + memory[hparams.optimizer]
    # The copy that is made while a checkpoint is written: weights are float32 there.
    checkpoint = 4 * parameters + memory[hparams.optimizer]
    batch = memory["activations"] + memory["logits"]
    return state + checkpoint + _SURELY_TAKEN * batch
