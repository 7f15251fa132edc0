"""Benchmark of training: target tokens per second, and the machine's matmul rate.

    python benchmarks/train.py --config compare --dtype bfloat16 --json

Runs `TrainStep` on random ids: a step of `t2t train` without reading the data. With
`--backend jax` it runs loss and gradient on JAX, without TensorFlow; with
`--baseline fit` it also runs Keras's training loop on the same model.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

import products
import rates
import timing
import workload
from stopwatch import seconds_of

from t2t_keras.cli.command import positive

FIT_STEPS = 4  # steps in one call of `fit`, whose start takes some time


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark that the flags describe; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser)
    parser.add_argument("--steps", type=positive, default=12, help="timed steps")
    parser.add_argument(
        "--replicas", type=positive, default=1, help="simulated on the CPU"
    )
    parser.add_argument(
        "--backend", choices=("tensorflow", "jax"), default="tensorflow"
    )
    parser.add_argument(
        "--accumulate", type=positive, default=1, help="micro-batches of each replica"
    )
    parser.add_argument("--baseline", choices=("fit",), help="to compare with")
    args = parser.parse_args(argv)
    parts = args.replicas * args.accumulate
    if args.backend == "jax" and (parts > 1 or args.baseline):
        parser.error(
            "--replicas, --accumulate and --baseline need --backend tensorflow"
        )
    os.environ["KERAS_BACKEND"] = args.backend

    work = workload.chosen(args)
    report = workload.described(args, work) | {"backend": args.backend}
    report |= _on_jax(work, args) if args.backend == "jax" else _ours(work, args)
    timing.show(report, args.json)
    return report


def _ours(work: workload.Workload, args: argparse.Namespace) -> dict[str, Any]:
    """Times `TrainStep`, and what it is compared with."""
    from training_work import prepare

    ready = prepare(work, args.replicas, args.accumulate)
    report = {
        "replicas": args.replicas,
        "accumulate": args.accumulate,
        "parameters": ready.parameters,
    }
    report |= _timed(work, args, ready.step, rates.tensorflow_multiply)
    if args.baseline:
        report |= _beside_fit(work, ready.step)
    return report | {"traces": ready.traces()}


def _on_jax(work: workload.Workload, args: argparse.Namespace) -> dict[str, Any]:
    """Times loss and gradient on JAX's first device."""
    from training_work_jax import prepare

    ready = prepare(work)
    report = {"device": ready.device, "parameters": ready.parameters}
    metrics = _timed(work, args, ready.step, rates.jax_multiply)
    return report | metrics | {"traces": ready.traces()}


def _timed(
    work: workload.Workload,
    args: argparse.Namespace,
    step: Callable[[], None],
    multiply: rates.Multiply,
) -> dict[str, Any]:
    """Times a step; returns tokens per second and the metrics of every report."""
    counted = products.training(
        work.hparams, work.vocab_size, work.batch, work.length, work.length
    )
    rate = rates.MatmulRate(counted, args.dtype, multiply)
    seconds = timing.timed(step, args.steps, rate)
    metrics = timing.metrics(seconds, products.total_flops(counted), rate)
    tokens_per_s = work.batch * work.length / metrics["seconds_per_step"]
    return {"target_tokens_per_s": tokens_per_s} | metrics


def _beside_fit(work: workload.Workload, step: Callable[[], None]) -> dict[str, Any]:
    """Times Keras's `fit` on the same batches, in turns with ours."""
    from training_work_fit import FitWork

    def ours(steps: int) -> None:
        for _ in range(steps):
            step()

    contestants = {
        "ours": ours,
        "fit": FitWork(work, xla=False).run,
        "fit_xla": FitWork(work, xla=True).run,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(1 + timing.ROUNDS):
        for name, run in contestants.items():
            spent = seconds_of(lambda run=run: run(FIT_STEPS))
            seconds[name].append(spent / FIT_STEPS)
    # Without the first round, which traces and compiles.
    median = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    tokens = work.batch * work.length
    return {
        "fit_target_tokens_per_s": tokens / median["fit"],
        "fit_xla_target_tokens_per_s": tokens / median["fit_xla"],
        "speedup": min(median["fit"], median["fit_xla"]) / median["ours"],
    }


if __name__ == "__main__":
    main()
