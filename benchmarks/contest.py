r"""Rates of this project and of other toolkits on one card, as a table.

    python benchmarks/contest.py --config base --dtype bfloat16
    FLAX_WMT=flax/examples/wmt python benchmarks/contest.py --config big \
        --contestants this_project pytorch flax_wmt --json

Each of the `contestants` whose toolkit is installed trains the same model on the same
random ids, and translates random sentences by beam search. They run one after the
other, in separate processes. Training is the median of several blocks of steps, with
one wait for the device at the end of each; a search is the median of whole searches.
"""

import argparse
import dataclasses
import importlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable

import workload
from contestants import TrainingStep
from rates import median_seconds

from t2t_keras.devices import gpu_details

CONTESTANTS = {
    "this_project": "t2t_keras",
    "keras_on_jax": "t2t_keras's layers on JAX",
    "pytorch": "plain PyTorch, compiled",
    "flax_wmt": "flax's examples/wmt",
    "marian": "MarianMT of transformers",
    "ctranslate2_model": "CTranslate2",
}
PAIRS = 704  # of 32 tokens: 22,528 for a step
BATCHES = (1, 32, 128, 512)
_BEAM_SIZE = 4
_SEARCH_STEPS = 40
_WARM_UP = 4  # steps
_BLOCKS = 4

# Target tokens per second by "training", sentences per second by the size of a batch,
# and "missing" or "failed".
Rates = dict[str, float | str]


def main() -> None:
    """Runs the contest that the flags describe and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser, "base")
    add_flags(parser)
    parser.set_defaults(batch=PAIRS)
    parser.add_argument("--one", choices=CONTESTANTS, help="only it, in this process")
    parser.add_argument("--on_gpu", action="store_true", help="refuse a CPU with --one")
    args = parser.parse_args()
    if args.one:
        _run(args)
        return
    results = measure(args)
    print(table(results), file=sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(results))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of a contest, besides the workload's."""
    parser.add_argument(
        "--contestants", nargs="+", choices=CONTESTANTS, default=[*CONTESTANTS]
    )
    parser.add_argument(
        "--batches",
        nargs="+",
        type=int,
        default=[*BATCHES],
        help="sentences that are translated at once",
    )
    parser.add_argument("--block", type=int, default=10, help="steps of a block")
    parser.add_argument("--searches", type=int, default=5, help="timed searches")


def measure(args: argparse.Namespace) -> dict[str, Rates]:
    """Returns the rates of each contestant; its process reports them one by one."""
    flags = workload.flags(args)
    flags += ["--batches", *map(str, args.batches)]
    flags += ["--block", str(args.block), "--searches", str(args.searches)]
    if gpu_details():
        flags.append("--on_gpu")
    results = {}
    for name in args.contestants:
        process = subprocess.run(
            [sys.executable, __file__, *flags, "--one", name],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "0"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        rates: Rates = {}
        for line in process.stdout.splitlines():
            rates |= json.loads(line)
        if process.returncode:
            rates["failed"] = process.returncode
        results[name] = rates
    return results


def table(results: dict[str, Rates]) -> str:
    """Returns the rates in Markdown, with a row for each contestant."""
    columns = {column for rates in results.values() for column in rates}
    sizes = sorted(int(column) for column in columns if column.isdecimal())
    batches = list(map(str, sizes))
    heads = ["", "training, target tokens/s", *(f"batch {b}" for b in batches)]
    lines = [heads, ["---"] * len(heads)]
    for name, rates in results.items():
        cells = [_cell(rates.get(column)) for column in ("training", *batches)]
        notes = [f" ({k}: {rates[k]})" for k in ("missing", "failed") if k in rates]
        lines.append([CONTESTANTS[name] + "".join(notes), *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(rate: float | None) -> str:
    if rate is None:
        return ""
    return f"{rate:,.4g}" if rate < 1000 else f"{rate:,.0f}"


def _run(args: argparse.Namespace) -> None:
    """Times one contestant and prints each rate as a JSON object."""
    work = workload.from_flags(args)
    try:
        contestant = importlib.import_module(f"contestants.{args.one}")
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": error.name or str(error)}))
        return
    if args.on_gpu and not contestant.uses_gpu():
        print(json.dumps({"missing": "a build for this GPU"}))
        return
    if hasattr(contestant, "training_step"):
        seconds = _seconds_per_step(contestant.training_step(work), args.block)
        print(json.dumps({"training": work.batch * work.length / seconds}), flush=True)
    if hasattr(contestant, "search"):
        for batch in args.batches:
            sentences = dataclasses.replace(work, batch=batch)
            search = contestant.search(sentences, _BEAM_SIZE, _SEARCH_STEPS)
            seconds = _seconds_of_search(search, args.searches)
            print(json.dumps({str(batch): batch / seconds}), flush=True)


def _seconds_per_step(step: TrainingStep, block: int) -> float:
    """Returns the median over blocks of steps, after steps that warm up."""

    def run_block(steps: int) -> None:
        for _ in range(steps):
            step.run()
        loss = step.wait()
        assert math.isfinite(loss), loss

    run_block(1)  # compiles
    run_block(_WARM_UP)
    return median_seconds(lambda: run_block(block), _BLOCKS) / block


def _seconds_of_search(search: Callable[[], None], searches: int) -> float:
    """Returns the median of some searches, after two that warm up."""
    search()  # compiles
    search()
    return median_seconds(search, searches)


if __name__ == "__main__":
    main()
