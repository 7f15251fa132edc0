"""How t2t_keras runs on a machine's GPUs: first run this, and send its report back.

    python benchmarks/gpu_check.py --dtype bfloat16 --json > gpu.json
    python benchmarks/gpu_check.py --audit --json     # on any machine, without a GPU

The audit counts, in the graph of a training step, operations without GPU kernels,
tensors of the vocabulary's size in the host's memory, bytes moved for each logit, float
operations, and waits of the host for the device. Then, each in a new process:

- The workload is trained in every way of `variants`, on one GPU: with and
  without packed rows, XLA, determinism and so on. The default way runs twice: both
  times the weights must end with the same bits, and the second time XLA's programs come
  from the cache. Two logical GPUs on one card must end with the bits of one GPU with
  two micro-batches.
- The default way is trained on 2, 4 and 8 GPUs.
- A training is killed and resumed; it must end with the bits of an uninterrupted one.
- Training and beam search are timed beside other toolkits; see `contest.py`.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import contest
import numpy as np
import rates
import tensorflow as tf
import workload
from audit import search_audit, training_audit
from rates import seconds_of
from variants import DEFAULT, VARIANTS, Training, Variant, start_training

from t2t_keras.devices import gpu_details
from t2t_keras.model.transformer import Transformer
from t2t_keras.processes import T2T
from t2t_keras.run.checkpoint import Checkpoint, model_variables

_AUDITED_VOCABULARY = 1009  # a size that no other axis has
_KILLED_STEPS = 120  # of the training that is killed and resumed
_SAVE_EVERY = 20
_KILLED_AFTER = 40  # steps
_SQUARE = 4096  # rows and columns of the matrices for the matmul rate


def main() -> None:
    """Runs what the flags ask for and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser, "base")
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--audit", action="store_true", help="only read the graph")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=[*VARIANTS])
    parser.add_argument("--one", choices=VARIANTS, help="only this way to train")
    contest.add_flags(parser)
    args = parser.parse_args()
    if args.one:
        report = _train(args, VARIANTS[args.one])
    elif args.audit:
        report = _audit(args)
    else:
        report = _audit(args) | _check_gpus(sys.argv[1:], args.variants)
        with tempfile.TemporaryDirectory() as folder:
            report["killed_training"] = _compare_killed_training(Path(folder))
        report["contest"] = contest.measure(args)
        print(contest.table(report["contest"]), file=sys.stderr)
    print(json.dumps(report, indent=None if args.json else 2))


def _audit(args: argparse.Namespace) -> dict[str, object]:
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
    names = [gpu.get("device_name", "unknown") for gpu in gpu_details()]
    count = min(1, len(names))
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in variants:
            runs[name] = _train_in_process(argv, name, count, folder)
        repeated = {}
        if DEFAULT in runs:
            repeated = _train_in_process(argv, DEFAULT, count, folder)
        several_gpus = [
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
        "more_gpus": several_gpus,
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
        folder: for XLA's programs, which depend on the variant beyond their names.
    """
    visible = ",".join(map(str, range(gpus))) or "-1"
    cache = f"--tf_xla_persistent_cache_directory={folder}/{variant}"
    process = subprocess.run(
        [sys.executable, __file__, *argv, "--one", variant, "--json"],
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": visible,
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
    work = workload.from_flags(args)
    training = start_training(work, variant)
    times = _time_updates(training, args.steps)
    seconds = times["seconds_per_step"]
    parts = training.parts
    return {
        "gpus": training.replicas if tf.config.list_logical_devices("GPU") else 0,
        "dtype": args.dtype,
        "target_tokens_per_s": parts * work.batch * work.length / seconds,
        **times,
        "fraction_of_matmul_rate": _fraction_of_matmul_rate(
            parts * _gflop(work) / seconds, args.dtype
        ),
        "weights_sha256": _weights_sha256(training.model),
    }


def _time_updates(training: Training, steps: int) -> dict[str, float]:
    """Returns the seconds of the first update and of later ones, and the last loss."""
    start = time.monotonic()
    float(training.update(0).loss_sum)
    seconds_of_first_step = time.monotonic() - start
    start = time.monotonic()
    for index in range(1, steps + 1):
        result = training.update(index)
    host_seconds = (time.monotonic() - start) / steps
    loss_sum = float(result.loss_sum)  # waits for the last update
    return {
        "seconds_per_step": (time.monotonic() - start) / steps,
        # Less than the above, unless the host waits for the device.
        "host_seconds_per_step": host_seconds,
        "seconds_of_first_step": seconds_of_first_step,
        "loss_sum": loss_sum,
    }


def _weights_sha256(model: Transformer) -> str:
    """Returns a hash of the names and values of all weights."""
    weights = hashlib.sha256()
    for name, variable in sorted(model_variables(model).items()):
        weights.update(name.encode() + variable.read_value().numpy().tobytes())
    return weights.hexdigest()


def _gflop(work: workload.Workload) -> float:
    """Returns 10^9 operations of a replica in a step."""
    matmuls = rates.training_matmuls(
        work.hparams, work.vocab_size, work.batch, work.length, work.length
    )
    return rates.total_flops(matmuls) / 1e9


def _fraction_of_matmul_rate(gflops: float, dtype: str) -> float:
    """Returns a rate of all cards as a share of what large matmuls reach on them.

    Args:
        gflops: 10^9 operations a second, of all cards; without a GPU, of the CPU.
        dtype: of the matmuls.
    """
    # Logical GPUs share their card's rate.
    cards = tf.config.list_physical_devices("GPU")
    card_gflops = _matmul_gflops(dtype, repetitions=50 if cards else 1)
    return gflops / (max(1, len(cards)) * card_gflops)


def _matmul_gflops(dtype: str, repetitions: int) -> float:
    """Returns one card's rate of matmuls so large that launches do not limit it."""
    matrix = tf.cast(tf.random.normal([_SQUARE, _SQUARE], seed=1), dtype)

    def multiply() -> None:
        for _ in range(repetitions):
            product = tf.matmul(matrix, matrix)
        float(product[0, 0])  # waits for the last product

    multiply()
    return 2 * _SQUARE**3 * repetitions / seconds_of(multiply) / 1e9


def _compare_killed_training(folder: Path) -> dict[str, int]:
    """Trains on the toy problem twice by `t2t train`, and kills one training.

    Returns:
        "arrays", how many the last checkpoint has, and "different_arrays", how many of
        them have other bits after the kill.
    """
    data = ("--problem", "translate_ende_toy", "--data_dir", str(folder / "data"))
    t2t = (sys.executable, *T2T)
    subprocess.run([*t2t, "datagen", *data], check=True, stdout=sys.stderr)
    train = (*t2t, "train", *data, "--hparams_set", "tiny")
    train += ("--train_steps", str(_KILLED_STEPS))
    train += ("--save_every", str(_SAVE_EVERY), "--eval_sentences", "0", "--seed", "1")
    runs = [folder / "uninterrupted", folder / "killed"]
    commands = [[*train, "--output_dir", str(run)] for run in runs]
    _kill(commands[1], runs[1] / f"model.ckpt-{_KILLED_AFTER}.index")
    for command in commands:
        subprocess.run(command, check=True, stdout=sys.stderr)
    uninterrupted, killed = (
        Checkpoint(run / f"model.ckpt-{_KILLED_STEPS}") for run in runs
    )
    different = [
        name
        for name in uninterrupted.shapes
        if not np.array_equal(uninterrupted.tensor(name), killed.tensor(name))
    ]
    return {"arrays": len(uninterrupted.shapes), "different_arrays": len(different)}


def _kill(command: list[str], checkpoint: Path) -> None:
    """Starts a training and kills it some steps after it has written a checkpoint.

    Raises:
        RuntimeError: it ended before.
    """
    process = subprocess.Popen(command, stdout=sys.stderr)
    while not checkpoint.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the training ended with {process.returncode}")
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if checkpoint.with_name(f"model.ckpt-{_KILLED_STEPS}.index").exists():
        raise RuntimeError("the training was over before it was killed")


if __name__ == "__main__":
    main()
