"""Benchmark of training: target tokens per second, and the machine's matmul rate.

    python benchmarks/train.py --config compare --dtype bfloat16 --json

Runs `TrainStep` on random ids: a step of `t2t train` without reading the data. With
`--replicas 2` two simulated devices share the processor, so that the additional time is
the overhead of replicas. With `--backend jax` it runs loss and gradient on JAX, without
TensorFlow; with `--baseline fit` it also runs Keras's training loop on the same model.
"""

import argparse
import os
import statistics
from collections import defaultdict
from collections.abc import Callable

import matmul_flops
import matmul_rate
import workload
from matmul_rate import seconds_of

from t2t_keras.cli.command import positive

FIT_STEPS = 4  # steps in one call of `fit`, whose start takes some time
FIT_ROUNDS = 4


def main() -> None:
    """Runs the benchmark that the flags describe and prints its report."""
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
    args = parser.parse_args()
    shards = args.replicas * args.accumulate
    if args.backend == "jax" and (shards > 1 or args.baseline):
        parser.error(
            "--replicas, --accumulate and --baseline need --backend tensorflow"
        )
    os.environ["KERAS_BACKEND"] = args.backend

    work = workload.from_flags(args)
    report = workload.description(args, work) | {"backend": args.backend}
    if args.backend == "jax":
        report |= _jax_report(work, args)
    else:
        report |= _tensorflow_report(work, args)
    workload.print_report(report, args.json)


def _tensorflow_report(
    work: workload.Workload, args: argparse.Namespace
) -> dict[str, object]:
    """Times `TrainStep`, and what it is compared with."""
    from training_steps import train_step

    step = train_step(work, args.replicas, args.accumulate)
    report: dict[str, object] = {
        "replicas": args.replicas,
        "accumulate": args.accumulate,
        "parameters": step.parameters,
    }
    report |= _speed(work, args, step.run, matmul_rate.tensorflow_multiply)
    if args.baseline:
        report |= _compared_with_fit(work, step.run)
    return report | {"traces": step.traces()}


def _jax_report(work: workload.Workload, args: argparse.Namespace) -> dict[str, object]:
    """Times loss and gradient on JAX's first device."""
    from training_steps import jax_step

    step = jax_step(work)
    report: dict[str, object] = {"device": step.device, "parameters": step.parameters}
    report |= _speed(work, args, step.run, matmul_rate.jax_multiply)
    return report | {"traces": step.traces()}


def _speed(
    work: workload.Workload,
    args: argparse.Namespace,
    step: Callable[[], None],
    multiply: matmul_rate.Multiply,
) -> dict[str, object]:
    """Times a step; returns tokens per second and the speed of the step."""
    matmuls = matmul_flops.training_matmuls(
        work.hparams, work.vocab_size, work.batch, work.length, work.length
    )
    rate = matmul_rate.MatmulRate(matmuls, args.dtype, multiply)
    seconds = matmul_rate.seconds_of_steps(step, args.steps, rate)
    speed = matmul_rate.speed(seconds, matmul_flops.total_flops(matmuls), rate)
    tokens_per_s = work.batch * work.length / speed["seconds_per_step"]
    return {"target_tokens_per_s": tokens_per_s, **speed}


def _compared_with_fit(
    work: workload.Workload, step: Callable[[], None]
) -> dict[str, object]:
    """Times Keras's `fit` on the same batches, alternately with `TrainStep`."""
    from training_steps import fit_steps

    def train(steps: int) -> None:
        for _ in range(steps):
            step()

    loops = {
        "train_step": train,
        "fit": fit_steps(work, jit_compile=False),
        "fit_xla": fit_steps(work, jit_compile=True),
    }
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(1 + FIT_ROUNDS):
        for name, run in loops.items():
            duration = seconds_of(lambda run=run: run(FIT_STEPS))
            seconds[name].append(duration / FIT_STEPS)
    # Without the first round, which traces and compiles.
    median = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    tokens = work.batch * work.length
    return {
        "fit_target_tokens_per_s": tokens / median["fit"],
        "fit_xla_target_tokens_per_s": tokens / median["fit_xla"],
        "speedup": min(median["fit"], median["fit_xla"]) / median["train_step"],
    }


if __name__ == "__main__":
    main()
