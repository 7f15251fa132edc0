"""Benchmark of the overhead of replicas: one batch on 1, 2, 4 simulated devices.

    python benchmarks/replicas.py --config tiny --json

The devices share one processor, so the matrix products take the same time for any
number of them. The rest is the overhead of replicas: the all-reduce of the gradients,
and an optimizer and a copy of the weights for each.
"""

import argparse
import statistics
from typing import Any

import timing
import workload
from stopwatch import seconds_of

from t2t_keras.cli.command import positive


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark that the flags describe; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser, config="tiny")
    parser.add_argument("--replicas", type=positive, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=positive, default=12, help="timed steps")
    args = parser.parse_args(argv)
    work = workload.chosen(args)
    report = workload.described(args, work) | _measured(work, args)
    timing.show(report, args.json)
    return report


def _measured(work: workload.Workload, args: argparse.Namespace) -> dict[str, Any]:
    """Times steps with every number of replicas in turns."""
    from training_work import prepare

    # The most first: a processor is split into devices once, before its first use.
    steps = {n: prepare(work, n).step for n in sorted(args.replicas, reverse=True)}
    seconds: dict[int, list[float]] = {n: [] for n in sorted(args.replicas)}
    for _ in range(2 + args.steps):
        for n, times in seconds.items():
            times.append(seconds_of(steps[n]))
    median = {n: statistics.median(times[2:]) for n, times in seconds.items()}
    fewest, most = min(median), max(median)
    return {
        "seconds_per_step": {str(n): value for n, value in median.items()},
        "seconds_per_further_replica": (median[most] - median[fewest])
        / max(most - fewest, 1),
    }


if __name__ == "__main__":
    main()
