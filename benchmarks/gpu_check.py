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
from typing import Any

import workload
from stopwatch import seconds_of

from t2t_keras.cli.command import positive

_AUDITED_VOCABULARY = 1009  # a size that no other axis has
_SQUARE = 4096  # rows and columns of the matrices for the matmul rate


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs what the flags ask for; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser, "base")
    parser.add_argument("--steps", type=positive, default=20, help="timed steps")
    parser.add_argument("--audit", action="store_true", help="only read the graph")
    parser.add_argument(
        "--jit_compile", action="store_true", help="let XLA compile the training"
    )
    parser.add_argument("--one", action="store_true", help="only the GPUs of this run")
    args = parser.parse_args(argv)
    if args.one:
        report = _trained(args)
    else:
        report = _audited(args)
        if not args.audit:
            report |= _checked(sys.argv[1:] if argv is None else argv)
    text = json.dumps(report) if args.json else json.dumps(report, indent=2)
    print(text)
    return report


def _audited(args: argparse.Namespace) -> dict[str, Any]:
    from gpu_audit import training_audit

    found = training_audit(workload.chosen(args).hparams, _AUDITED_VOCABULARY)
    return {
        "missing_kernels": found.missing_kernels,
        "host_vocabulary_tensors": found.host_vocabulary_tensors,
        "bytes_per_logit": found.bytes_per_logit,
        "float_ops_per_step": found.float_ops,
    }


def _checked(argv: list[str]) -> dict[str, Any]:
    """Trains on more and more GPUs, or on the CPU if there are none."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    names = [detail.get("device_name", "unknown") for detail in details]
    counts = [n for n in (1, 2, 4, 8) if n <= len(gpus)] or [0]
    runs = [_in_process(argv, count) for count in counts]
    first, again = runs[0]["weights_sha256"], _in_process(argv, counts[0])
    build = tf.sysconfig.get_build_info()
    return {
        "tensorflow": tf.__version__,
        "cuda": build.get("cuda_version"),
        "devices": names,
        "runs": runs,
        "with_xla": _in_process([*argv, "--jit_compile"], counts[0]),
        # Neither may have failed.
        "two_runs_are_equal": first is not None and first == again["weights_sha256"],
    }


def _in_process(argv: list[str], gpus: int) -> dict[str, Any]:
    """Runs the training on the first GPUs, in another process."""
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


def _trained(args: argparse.Namespace) -> dict[str, Any]:
    """Times updates on the visible GPUs; every GPU gets the work's batch."""
    import products
    import tensorflow as tf
    from training_work import LEARNING_RATE, model_and_step

    from t2t_keras.data.pipeline import rows_per_replica
    from t2t_keras.run.checkpoint import model_variables
    from t2t_keras.training.strategy import distribute, make_strategy

    work = workload.chosen(args)
    hparams = work.hparams
    if args.jit_compile:
        hparams = hparams.override(bucketing="static", jit_compile=True)
    tf.keras.utils.set_random_seed(1)
    strategy = make_strategy()
    tf.config.experimental.enable_op_determinism()
    replicas = strategy.num_replicas_in_sync
    model, step = model_and_step(hparams, work.vocab_size, strategy)
    sides = [tf.tile(work.ids(seed), [replicas, 1]) for seed in (0, 1)]
    parts = tuple(rows_per_replica(side, replicas) for side in sides)
    (batch,) = distribute(strategy, tf.data.Dataset.from_tensor_slices(parts))

    start = time.monotonic()
    float(step.update(batch, 0, LEARNING_RATE).loss_sum)
    first = time.monotonic() - start
    start = time.monotonic()
    for number in range(1, args.steps + 1):
        result = step.update(batch, number, LEARNING_RATE)
    loss = float(result.loss_sum)  # waits for the last one
    seconds = (time.monotonic() - start) / args.steps

    weights = hashlib.sha256()
    for name, variable in sorted(model_variables(model).items()):
        weights.update(name.encode() + variable.read_value().numpy().tobytes())
    counted = products.training(
        work.hparams, work.vocab_size, work.batch, work.length, work.length
    )
    gflops = products.total_flops(counted) / seconds / 1e9  # of one replica
    gpus = replicas if tf.config.list_logical_devices("GPU") else 0
    matmul_gflops = _matmul_gflops(args.dtype, repetitions=50 if gpus else 1)
    return {
        "gpus": gpus,
        "dtype": args.dtype,
        "jit_compile": args.jit_compile,
        "target_tokens_per_s": replicas * work.batch * work.length / seconds,
        "seconds_per_step": seconds,
        "seconds_of_first_step": first,
        "fraction_of_matmul_rate": gflops / matmul_gflops,
        "loss_sum": loss,
        "weights_sha256": weights.hexdigest(),
    }


def _matmul_gflops(dtype: str, repetitions: int) -> float:
    """Returns the rate of matmuls so large that launches do not limit it."""
    import tensorflow as tf

    matrix = tf.cast(tf.random.normal([_SQUARE, _SQUARE], seed=1), dtype)

    def multiply() -> None:
        for _ in range(repetitions):
            product = tf.matmul(matrix, matrix)
        float(product[0, 0])  # waits for the last one

    multiply()
    return 2 * _SQUARE**3 * repetitions / seconds_of(multiply) / 1e9


if __name__ == "__main__":
    main()
