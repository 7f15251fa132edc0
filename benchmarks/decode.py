"""Benchmark of beam search: sentences per second, and the machine's matmul rate.

    python benchmarks/decode.py --config compare --dtype bfloat16 --json

With `--batch 1` the latency matters: the report has the milliseconds of a step, and of
reading the weights from memory once.
"""

import argparse
import statistics
from typing import Any

import products
import rates
import timing
import workload
from stopwatch import seconds_of

from t2t_keras.cli.command import positive


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark that the flags describe; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser)
    parser.add_argument("--beam_size", type=positive, default=4)
    parser.add_argument(
        "--max_length", type=int, default=40, help="steps of each search, above 1"
    )
    parser.add_argument("--steps", type=positive, default=4, help="searches timed")
    args = parser.parse_args(argv)
    if args.max_length < 2:
        parser.error("--max_length must be at least 2")
    work = workload.chosen(args)
    report = workload.described(args, work) | _measured(work, args)
    timing.show(report, args.json)
    return report


def _measured(work: workload.Workload, args: argparse.Namespace) -> dict[str, Any]:
    """Times whole searches and searches of one step, to find what each step adds."""
    from decoding_work import prepare

    beam_size, steps = args.beam_size, args.max_length
    counted = products.decoding(
        work.hparams, work.vocab_size, work.batch, work.length, beam_size, steps
    )
    ready = prepare(work, beam_size)
    rate = rates.MatmulRate(counted, args.dtype)
    seconds = timing.timed(lambda: ready.search(steps), args.steps, rate)
    first = [seconds_of(lambda: ready.search(1)) for _ in range(args.steps)]
    metrics = timing.metrics(seconds, products.total_flops(counted), rate)
    one_step = (metrics["seconds_per_step"] - statistics.median(first)) / (steps - 1)
    return {
        "beam_size": beam_size,
        "max_length": steps,
        "sentences_per_s": work.batch / metrics["seconds_per_step"],
        **metrics,
        "ms_per_position": 1e3 * one_step,
        "ms_to_read_weights": 1e3 * _seconds_to_read_weights(work, args.dtype),
        "traces": ready.traces(),
    }


def _seconds_to_read_weights(work: workload.Workload, dtype: str) -> float:
    """Returns the lower bound of a step's time: reading its weights from memory."""
    width = {"float32": 4, "bfloat16": 2}[dtype]
    size = width * products.step_weights(work.hparams, work.vocab_size)
    return size / rates.tensorflow_bandwidth()


if __name__ == "__main__":
    main()
