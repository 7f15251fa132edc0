"""How t2t_keras runs on a machine's GPUs, as one JSON object to send back.

    python benchmarks/gpu_check.py --json > gpu.json
    python benchmarks/gpu_check.py --audit --json     # on any machine, without a GPU

The audit counts, in the graph of a training step, operations without GPU kernels,
tensors of the vocabulary's size in the host's memory, bytes moved for each logit, and
float operations. Then it trains on 1, 2, 4 and 8 GPUs, each time in a new process, and
twice more on a single GPU: once unchanged, which must give the same weights bit for
bit, and once compiled by XLA.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import matmul_flops
import workload
from matmul_rate import seconds_of

from t2t_keras.cli.command import positive

if TYPE_CHECKING:
    from t2t_keras.model.transformer import Transformer

_AUDITED_VOCABULARY = 1009  # a size that no other axis has
_SQUARE = 4096  # rows and columns of the matrices for the matmul rate


def main() -> None:
    """Runs what the flags ask for and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser, "base")
    parser.add_argument("--steps", type=positive, default=20, help="timed steps")
    parser.add_argument("--audit", action="store_true", help="only read the graph")
    parser.add_argument(
        "--jit_compile", action="store_true", help="let XLA compile the training"
    )
    parser.add_argument("--one", action="store_true", help="only the GPUs of this run")
    args = parser.parse_args()
    if args.one:
        report = _train(args)
    else:
        report = _audit(args)
        if not args.audit:
            report |= _check_gpus(sys.argv[1:])
    print(json.dumps(report, indent=None if args.json else 2))


def _audit(args: argparse.Namespace) -> dict[str, object]:
    from graph_audit import training_audit

    audit = training_audit(workload.from_flags(args).hparams, _AUDITED_VOCABULARY)
    return {
        "missing_kernels": audit.missing_kernels,
        "host_vocabulary_tensors": audit.host_vocabulary_tensors,
        "bytes_per_logit": audit.bytes_per_logit,
        "float_ops_per_step": audit.float_ops,
    }


def _check_gpus(argv: list[str]) -> dict[str, object]:
    """Trains on more and more GPUs, or on the CPU if there are none."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    names = []
    for gpu in gpus:
        details = tf.config.experimental.get_device_details(gpu)
        names.append(details.get("device_name", "unknown"))
    counts = [n for n in (1, 2, 4, 8) if n <= len(gpus)] or [0]
    runs = [_train_in_process(argv, count) for count in counts]
    weights = runs[0]["weights_sha256"]
    repeated = _train_in_process(argv, counts[0])
    return {
        "tensorflow": tf.__version__,
        "cuda": tf.sysconfig.get_build_info().get("cuda_version"),
        "devices": names,
        "runs": runs,
        "with_xla": _train_in_process([*argv, "--jit_compile"], counts[0]),
        # A run that failed has no weights.
        "two_runs_are_equal": weights is not None
        and weights == repeated["weights_sha256"],
    }


def _train_in_process(argv: list[str], gpus: int) -> dict[str, object]:
    """Runs the training in another process, on as many GPUs."""
    visible = ",".join(map(str, range(gpus))) or "-1"
    process = subprocess.run(
        [sys.executable, __file__, *argv, "--one", "--json"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": visible},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if process.returncode:
        return {"gpus": gpus, "failed": process.returncode, "weights_sha256": None}
    return json.loads(process.stdout.splitlines()[-1])


def _train(args: argparse.Namespace) -> dict[str, object]:
    """Times updates on the visible GPUs; every GPU gets the workload's batch."""
    import tensorflow as tf
    from training_steps import LEARNING_RATE, model_and_step

    from t2t_keras.data.pipeline import rows_per_replica
    from t2t_keras.training.strategy import distribute, make_strategy

    work = workload.from_flags(args)
    hparams = work.hparams
    if args.jit_compile:
        hparams = hparams.override(bucketing="static", jit_compile=True)
    tf.keras.utils.set_random_seed(1)
    strategy = make_strategy()
    tf.config.experimental.enable_op_determinism()
    replicas = strategy.num_replicas_in_sync
    model, step = model_and_step(hparams, work.vocab_size, strategy)
    source = rows_per_replica(tf.tile(work.ids(0), [replicas, 1]), replicas)
    target = rows_per_replica(tf.tile(work.ids(1), [replicas, 1]), replicas)
    sides = {"source": source, "target": target}
    dataset = tf.data.Dataset.from_tensor_slices(sides)
    (batch,) = distribute(strategy, dataset)

    start = time.monotonic()
    float(step.update(batch, 0, LEARNING_RATE).loss_sum)
    seconds_of_first_step = time.monotonic() - start
    start = time.monotonic()
    for index in range(1, args.steps + 1):
        result = step.update(batch, index, LEARNING_RATE)
    loss_sum = float(result.loss_sum)  # waits for the last update
    seconds = (time.monotonic() - start) / args.steps

    gpus = replicas if tf.config.list_logical_devices("GPU") else 0
    matmul_gflops = _matmul_gflops(args.dtype, repetitions=50 if gpus else 1)
    return {
        "gpus": gpus,
        "dtype": args.dtype,
        "jit_compile": args.jit_compile,
        "target_tokens_per_s": replicas * work.batch * work.length / seconds,
        "seconds_per_step": seconds,
        "seconds_of_first_step": seconds_of_first_step,
        "fraction_of_matmul_rate": _gflop(work) / seconds / matmul_gflops,
        "loss_sum": loss_sum,
        "weights_sha256": _weights_sha256(model),
    }


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


def _matmul_gflops(dtype: str, repetitions: int) -> float:
    """Returns the rate of matmuls so large that launches do not limit it."""
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
