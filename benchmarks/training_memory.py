"""Benchmark of a training step's memory, and the largest batch that fits.

    python benchmarks/training_memory.py --config base --json

Each batch is trained on in a separate process, whose peak resident set the system
reports. A line through these points gives the fixed memory, for weights and optimizer,
and the memory for each target token.
"""

import argparse
import dataclasses
import multiprocessing
import resource

import numpy as np
import workload

from t2t_keras.cli.command import positive

STEPS = 2  # The second has everything that stays in memory between steps.
SIZES = (2, 4, 8, 16, 24, 32, 48, 80)  # GB


def main() -> None:
    """Runs the benchmark that the flags describe and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser, config="base")
    parser.add_argument(
        "--tokens", type=positive, nargs="+", default=[1024, 2048, 4096]
    )
    parser.add_argument(
        "--accumulate", type=positive, default=1, help="micro-batches of each step"
    )
    args = parser.parse_args()
    work = workload.from_flags(args)
    peaks = [_peak_in_child(work, tokens, args.accumulate) for tokens in args.tokens]
    slope, fixed = np.polyfit(args.tokens, peaks, 1)
    report = workload.description(args, work) | {
        "accumulate": args.accumulate,
        "tokens": args.tokens,
        "peak_gb": [peak / 1e9 for peak in peaks],
        "fixed_gb": fixed / 1e9,
        "kb_per_token": slope / 1e3,
        "largest_batch_tokens": {
            f"{size} GB": max(0, int((size * 1e9 - fixed) / slope)) for size in SIZES
        },
    }
    workload.print_report(report, args.json)


def _peak_in_child(work: workload.Workload, tokens: int, micro_batches: int) -> int:
    """Returns the peak memory, in bytes, of a process that trains on such batches."""
    work = dataclasses.replace(work, batch=max(1, tokens // work.length))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (work, micro_batches))


def _peak(work: workload.Workload, micro_batches: int) -> int:
    """Trains for some steps in this process; returns its peak in bytes."""
    from training_steps import train_step

    step = train_step(work, micro_batches=micro_batches)
    for _ in range(STEPS):
        step.run()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
