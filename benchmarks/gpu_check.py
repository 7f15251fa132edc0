"""How t2t_keras runs on a machine's GPUs, as one JSON object to send back.

    python benchmarks/gpu_check.py --json > gpu.json
    python benchmarks/gpu_check.py --audit --json     # on any machine, without a GPU

The audit counts, in the graph of a training step, operations without GPU kernels,
tensors of the vocabulary's size in the host's memory, bytes moved for each logit, float
operations, and waits of the host for the device. Then the workload is trained,
each time in a new process:

- every way to train in `VARIANTS`, on one GPU: with and without XLA, determinism and so
  on. The default way runs twice: both times the weights must end with the same bits,
  and the second time XLA's programs come from the cache. Two logical GPUs on one card
  must end with the bits of one GPU with two micro-batches, both with packed rows.
- the default way on 2, 4 and 8 GPUs.
"""

import argparse
import functools
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import matmul_flops
import numpy as np
import workload
from matmul_rate import seconds_of

from t2t_keras.cli.command import positive
from t2t_keras.gpu_details import gpu_details

if TYPE_CHECKING:
    from t2t_keras.model.transformer import Transformer
    from t2t_keras.training.step import StepResult


class Variant(NamedTuple):
    """A way to train.

    Attributes:
        jit_compile: whether XLA compiles the update.
        only_gradients: whether XLA compiles forward and backward pass only.
        is_deterministic: whether operations are deterministic, as `t2t train` has them.
        xla_flags: further flags.
        xla_scatter: whether XLA's scatter adds up the gradients of embeddings.
        logical_gpus: the parts into which the first GPU is divided, each a replica.
        micro_batches: of each replica.
        pairs_in_row: pairs in each packed row; 1: rows are not packed.
    """

    jit_compile: bool = True
    only_gradients: bool = False
    is_deterministic: bool = True
    xla_flags: str = ""
    xla_scatter: bool = False
    logical_gpus: int = 1
    micro_batches: int = 1
    pairs_in_row: int = 1


_TRITON = "--xla_gpu_enable_triton_gemm=true"
_EXPANDER = "--xla_gpu_enable_scatter_determinism_expander=true"
DEFAULT = "xla"
VARIANTS = {
    DEFAULT: Variant(),
    "packed": Variant(pairs_in_row=4),
    "without_xla": Variant(jit_compile=False),
    "only_gradients": Variant(only_gradients=True),
    "not_deterministic": Variant(is_deterministic=False),
    "triton": Variant(xla_flags=_TRITON),
    "cublaslt": Variant(xla_flags="--xla_gpu_enable_cublaslt=true"),
    "triton_not_deterministic": Variant(is_deterministic=False, xla_flags=_TRITON),
    "xla_scatter": Variant(is_deterministic=False, xla_scatter=True),
    "expanded_scatter": Variant(xla_flags=_EXPANDER, xla_scatter=True),
    "two_logical_gpus": Variant(logical_gpus=2, pairs_in_row=4),
    "two_micro_batches": Variant(micro_batches=2, pairs_in_row=4),
}

_AUDITED_VOCABULARY = 1009  # a size that no other axis has
_SQUARE = 4096  # rows and columns of the matrices for the matmul rate


def main() -> None:
    """Runs what the flags ask for and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser, "base")
    parser.add_argument("--steps", type=positive, default=20, help="timed steps")
    parser.add_argument("--audit", action="store_true", help="only read the graph")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=[*VARIANTS])
    parser.add_argument("--one", choices=VARIANTS, help="only this way to train")
    args = parser.parse_args()
    if args.one:
        report = _train(args, VARIANTS[args.one])
    else:
        report = _audit(args)
        if not args.audit:
            report |= _check_gpus(sys.argv[1:], args.variants)
    print(json.dumps(report, indent=None if args.json else 2))


def _audit(args: argparse.Namespace) -> dict[str, object]:
    from graph_audit import search_audit, training_audit

    hparams = workload.from_flags(args).hparams
    compiled = hparams.override(bucketing="packed", jit_compile=True)
    audit = training_audit(hparams, _AUDITED_VOCABULARY)
    waits = {
        DEFAULT: training_audit(compiled, _AUDITED_VOCABULARY).host_waits,
        "without_xla": audit.host_waits,
    }
    for name, is_compiled in (("search", True), ("search_without_xla", False)):
        searched = search_audit(hparams, _AUDITED_VOCABULARY, jit_compile=is_compiled)
        waits[name] = searched.host_waits
    return {
        "missing_kernels": audit.missing_kernels,
        "host_vocabulary_tensors": audit.host_vocabulary_tensors,
        "bytes_per_logit": audit.bytes_per_logit,
        "float_ops_per_step": audit.float_ops,
        "host_waits": waits,
    }


def _check_gpus(argv: list[str], variants: list[str]) -> dict[str, object]:
    """Trains in every way, and on more and more GPUs; on the CPU if there are none."""
    import tensorflow as tf

    names = [gpu.get("device_name", "unknown") for gpu in gpu_details()]
    count = min(1, len(names))
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in variants:
            runs[name] = _train_in_process(argv, name, count, folder)
        repeated = {}
        if DEFAULT in runs:
            repeated = _train_in_process(argv, DEFAULT, count, folder)
        more = [
            _train_in_process(argv, DEFAULT, n, folder)
            for n in (2, 4, 8)
            if n <= len(names)
        ]
    return {
        "tensorflow": tf.__version__,
        "cuda": tf.sysconfig.get_build_info().get("cuda_version"),
        "devices": names,
        "variants": runs,
        "seconds_of_first_step_from_cache": repeated.get("seconds_of_first_step"),
        "more_gpus": more,
        "two_runs_are_equal": _are_equal(runs.get(DEFAULT), repeated),
        "two_logical_gpus_are_two_micro_batches": _are_equal(
            runs.get("two_logical_gpus"), runs.get("two_micro_batches")
        ),
    }


def _are_equal(
    run: dict[str, object] | None, other_run: dict[str, object] | None
) -> bool | None:
    """Returns whether two runs ended with the same weights; None if one is missing."""
    if not run or not other_run or "failed" in run or "failed" in other_run:
        return None
    return run["weights_sha256"] == other_run["weights_sha256"]


def _train_in_process(
    argv: list[str], variant: str, gpus: int, folder: str
) -> dict[str, object]:
    """Runs the training in another process, on as many GPUs.

    Args:
        argv: the command line.
        variant: the way to train.
        gpus: the number of GPUs; 0: the CPU.
        folder: for XLA's programs. They depend on the variant beyond their names.
    """
    visible = ",".join(map(str, range(gpus))) or "-1"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {VARIANTS[variant].xla_flags}"
    cache = f"--tf_xla_persistent_cache_directory={folder}/{variant}"
    process = subprocess.run(
        [sys.executable, __file__, *argv, "--one", variant, "--json"],
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": visible,
            "XLA_FLAGS": flags.strip(),
            "TF_XLA_FLAGS": f"{os.environ.get('TF_XLA_FLAGS', '')} {cache}".strip(),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if process.returncode:
        return {"gpus": gpus, "failed": process.returncode}
    return json.loads(process.stdout.splitlines()[-1])


def _train(args: argparse.Namespace, variant: Variant) -> dict[str, object]:
    """Times updates on the visible GPUs; every part gets the workload's batch."""
    import tensorflow as tf
    from training_steps import model_and_step

    import t2t_keras.training.step
    from t2t_keras.data.pipeline import rows_per_replica
    from t2t_keras.training.strategy import distribute, make_strategy

    work = workload.from_flags(args)
    pairs_in_row = math.gcd(variant.pairs_in_row, work.batch)
    hparams = work.hparams.override(
        bucketing="static" if pairs_in_row == 1 else "packed",
        jit_compile=variant.jit_compile,
    )
    tf.keras.utils.set_random_seed(1)
    strategy = make_strategy(_divide_first_device(variant.logical_gpus))
    if variant.is_deterministic:
        tf.config.experimental.enable_op_determinism()
    if variant.xla_scatter:
        t2t_keras.training.step.segment_sums = tf.math.unsorted_segment_sum
    replicas = strategy.num_replicas_in_sync
    parts = replicas * variant.micro_batches
    model, step = model_and_step(
        hparams, work.vocab_size, strategy, variant.micro_batches
    )
    if variant.only_gradients:
        step.weight_update = step.apply
    batch = {}
    for seed, side in enumerate(("source", "target")):
        ids = np.tile(work.ids(seed), (parts, 1))
        for name, rows in _rows(side, ids, pairs_in_row).items():
            batch[name] = rows_per_replica(rows, replicas, variant.micro_batches)
    (batch,) = distribute(strategy, tf.data.Dataset.from_tensor_slices(batch))

    times = _time_updates(functools.partial(step.update, batch), args.steps)
    seconds = times["seconds_per_step"]
    return {
        "gpus": replicas if tf.config.list_logical_devices("GPU") else 0,
        "dtype": args.dtype,
        "target_tokens_per_s": parts * work.batch * work.length / seconds,
        **times,
        "fraction_of_matmul_rate": _fraction_of_matmul_rate(
            parts * _gflop(work) / seconds, args.dtype
        ),
        "weights_sha256": _weights_sha256(model),
    }


def _rows(side: str, ids: np.ndarray, pairs_in_row: int) -> dict[str, np.ndarray]:
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


def _time_updates(
    update: Callable[[int, float], "StepResult"], steps: int
) -> dict[str, float]:
    """Returns the seconds of the first update and of later ones, and the last loss."""
    from training_steps import LEARNING_RATE

    start = time.monotonic()
    float(update(0, LEARNING_RATE).loss_sum)
    seconds_of_first_step = time.monotonic() - start
    start = time.monotonic()
    for index in range(1, steps + 1):
        result = update(index, LEARNING_RATE)
    host_seconds = (time.monotonic() - start) / steps
    loss_sum = float(result.loss_sum)  # waits for the last update
    return {
        "seconds_per_step": (time.monotonic() - start) / steps,
        # Less than the above, unless the host waits for the device.
        "host_seconds_per_step": host_seconds,
        "seconds_of_first_step": seconds_of_first_step,
        "loss_sum": loss_sum,
    }


def _divide_first_device(parts: int) -> int:
    """Divides the first GPU into logical ones; returns how many to simulate."""
    import tensorflow as tf

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


def _weights_sha256(model: "Transformer") -> str:
    """Returns a hash of the names and values of all weights."""
    from t2t_keras.run.checkpoint import model_variables

    weights = hashlib.sha256()
    for name, variable in sorted(model_variables(model).items()):
        weights.update(name.encode() + variable.read_value().numpy().tobytes())
    return weights.hexdigest()


def _gflop(work: workload.Workload) -> float:
    """Returns 10^9 operations of a replica in a step."""
    matmuls = matmul_flops.training_matmuls(
        work.hparams, work.vocab_size, work.batch, work.length, work.length
    )
    return matmul_flops.total_flops(matmuls) / 1e9


def _fraction_of_matmul_rate(gflops: float, dtype: str) -> float:
    """Returns a rate of all cards as a share of what large matmuls reach on them.

    Args:
        gflops: 10^9 operations a second, of all cards; without a GPU, of the CPU.
        dtype: of the matmuls.
    """
    import tensorflow as tf

    # Logical GPUs share their card's rate.
    cards = tf.config.list_physical_devices("GPU")
    card_gflops = _matmul_gflops(dtype, repetitions=50 if cards else 1)
    return gflops / (max(1, len(cards)) * card_gflops)


def _matmul_gflops(dtype: str, repetitions: int) -> float:
    """Returns one card's rate of matmuls so large that launches do not limit it."""
    import tensorflow as tf

    matrix = tf.cast(tf.random.normal([_SQUARE, _SQUARE], seed=1), dtype)

    def multiply() -> None:
        for _ in range(repetitions):
            product = tf.matmul(matrix, matrix)
        float(product[0, 0])  # waits for the last product

    multiply()
    return 2 * _SQUARE**3 * repetitions / seconds_of(multiply) / 1e9


if __name__ == "__main__":
    main()
