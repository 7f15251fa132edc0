"""Ways to train on GPUs, for timing and for comparing the weights."""

import math
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf
from train import model_and_step, updates_of
from workload import Workload

from t2t_keras.training.strategy import make_strategy

if TYPE_CHECKING:
    from t2t_keras.model.transformer import Transformer
    from t2t_keras.training.step import StepResult


class Variant(NamedTuple):
    """A way to train.

    Attributes:
        jit_compile: whether XLA compiles the update.
        is_deterministic: whether operations are deterministic, as `t2t train` has them.
        logical_gpus: the parts into which the first GPU is divided, each a replica.
        micro_batches: of each replica.
        pairs_in_row: pairs in each packed row; 1: rows are not packed.
    """

    jit_compile: bool = True
    is_deterministic: bool = True
    logical_gpus: int = 1
    micro_batches: int = 1
    pairs_in_row: int = 4


DEFAULT = "packed"
VARIANTS = {
    DEFAULT: Variant(),
    "unpacked": Variant(pairs_in_row=1),
    "without_xla": Variant(jit_compile=False),
    "not_deterministic": Variant(is_deterministic=False),
    "two_logical_gpus": Variant(logical_gpus=2),
    "two_micro_batches": Variant(micro_batches=2),
}


class Training(NamedTuple):
    """A model and its update, on a batch that stays the same.

    Attributes:
        model: the model.
        update: makes the update of a step, counted from 0.
        replicas: their number.
        parts: the number of micro-batches of all replicas, each as large as the
            workload's batch.
    """

    model: "Transformer"
    update: Callable[[int], "StepResult"]
    replicas: int
    parts: int


def start_training(work: Workload, variant: Variant) -> Training:
    """Returns a new training on the visible GPUs, or on the CPU without one."""
    pairs_in_row = math.gcd(variant.pairs_in_row, work.batch)
    hparams = work.hparams.override(
        bucketing="static" if pairs_in_row == 1 else "packed",
        jit_compile=variant.jit_compile,
    )
    tf.keras.utils.set_random_seed(1)
    strategy = make_strategy(_divide_first_device(variant.logical_gpus))
    if variant.is_deterministic:
        tf.config.experimental.enable_op_determinism()
    replicas = strategy.num_replicas_in_sync
    parts = replicas * variant.micro_batches
    model, step = model_and_step(
        hparams, work.vocab_size, strategy, variant.micro_batches
    )
    batch = {}
    for seed, side in enumerate(("source", "target")):
        ids = np.tile(work.ids(seed), (parts, 1))
        batch |= packed_rows(side, ids, pairs_in_row)
    update = updates_of(step, batch, strategy, variant.micro_batches)
    return Training(model, update, replicas, parts)


def packed_rows(side: str, ids: np.ndarray, pairs_in_row: int) -> dict[str, np.ndarray]:
    """Returns one side of a `Batch`, given the ids [B, T] of its pairs."""
    if pairs_in_row == 1:
        return {side: ids}
    pairs, positions = np.indices(ids.shape, np.int32)
    columns = {
        side: ids,
        f"{side}_segments": pairs + 1,
        f"{side}_positions": positions,
    }
    width = pairs_in_row * ids.shape[1]
    return {name: rows.reshape(-1, width) for name, rows in columns.items()}


def _divide_first_device(parts: int) -> int:
    """Divides the first GPU into logical ones; returns how many to simulate."""
    gpus = tf.config.list_physical_devices("GPU")
    if parts > 1 and gpus:
        # The rest of the card's memory is for libraries.
        limit = int(0.4 * _memory_mb())
        tf.config.set_logical_device_configuration(
            gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * parts
        )
    return parts if parts > 1 and not gpus else 0


def _memory_mb() -> int:
    """Returns the memory of the first GPU in megabytes."""
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    return int(subprocess.check_output(query, text=True).split()[0])
