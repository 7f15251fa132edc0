"""Times a step together with the machine's matmul rate, and reports both."""

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

from rates import MatmulRate
from stopwatch import seconds_of

ROUNDS = 4  # of steps, with a sample of the matmul rate around each


def timed(step: Callable[[], Any], steps: int, rate: MatmulRate) -> list[float]:
    """Returns the seconds of each step, after two that warm up.

    Args:
        step: does the work and returns when it is done.
        steps: the number of timed steps.
        rate: sampled before, between and after them, so that a slow phase of the
            machine affects both.
    """
    step()
    step()
    seconds = []
    rate.sample()
    for i in range(steps):
        seconds.append(seconds_of(step))
        if (i + 1) * ROUNDS // steps > i * ROUNDS // steps:
            rate.sample()
    return seconds


def metrics(seconds: list[float], flops: int, rate: MatmulRate) -> dict[str, Any]:
    """Returns the metrics that every report has, for the median step."""
    median = statistics.median(seconds)
    gflops, matmul_gflops = flops / median / 1e9, rate.gflops()
    return {
        "steps": len(seconds),
        "seconds_per_step": median,
        "min_seconds_per_step": min(seconds),
        "gflop_per_step": flops / 1e9,
        "gflops": gflops,
        "matmul_gflops": matmul_gflops,
        "fraction": gflops / matmul_gflops,
    }


def show(report: dict[str, Any], as_json: bool) -> None:
    """Prints a table; with `as_json` on standard error, before the JSON line."""
    from t2t_keras.cli.command import table

    print(table(_flat(report)), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(report))


def _flat(report: dict[str, Any]) -> dict[str, Any]:
    """Returns one row for each number, also for those in dicts and lists."""
    rows: dict[str, Any] = {}
    for name, value in report.items():
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            rows |= {f"{name}[{key}]": number for key, number in value.items()}
        else:
            rows[name] = value
    return rows
