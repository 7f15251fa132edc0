"""Draws the learning curves of one run or several: losses, and BLEU or F1 on dev.

    pip install ".[plot]"
    python examples/plot_curve.py runs/a runs/b --write curves.svg

A run directory may be given as its `metrics.jsonl` alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

Line = dict[str, Any]  # of `metrics.jsonl`
METRICS = ("bleu", "f1_errors_as_zero")


def main() -> None:
    """Reads the runs and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--write", required=True, metavar="FILE", help="an SVG or PNG")
    args = parser.parse_args()

    figure, (losses, scores) = pyplot.subplots(1, 2, figsize=(10, 4))
    for index, path in enumerate(args.runs):
        lines = read(path)
        run = path.parent if path.name == "metrics.jsonl" else path
        name = run.name.removesuffix(".jsonl")
        color = f"C{index}"
        if any("nll" in line for line in lines):
            label = f"{name}, training"
            draw(losses, lines, "train", "nll", color=color, label=label)
        else:  # Older records have only the label-smoothed loss.
            label = f"{name}, label-smoothed training"
            draw(losses, lines, "train", "loss", color=color, label=label)
        dev = {"color": color, "marker": "o", "linestyle": "--"}
        draw(losses, lines, "dev", "nll", label=f"{name}, dev", **dev)
        for metric in METRICS:
            draw(scores, lines, "dev", metric, label=f"{name}, {metric}", **dev)
    losses.set_ylabel("cross-entropy per token")
    scores.set_ylabel("on dev")
    for axes in (losses, scores):
        axes.set_xlabel("updates")
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend()
    figure.tight_layout()
    figure.savefig(args.write)


def read(path: Path) -> list[Line]:
    """Returns the lines of `metrics.jsonl`."""
    file = path / "metrics.jsonl" if path.is_dir() else path
    lines = file.read_text(encoding="utf-8").splitlines()
    return list(map(json.loads, lines))


def draw(axes: Axes, lines: list[Line], split: str, key: str, **style: str) -> None:
    """Plots a metric over the steps, from the lines of a split that have it."""
    steps = []
    values = []
    for line in lines:
        if line["kind"] == split and key in line:
            steps.append(line["step"])
            values.append(line[key])
    if steps:
        axes.plot(steps, values, **style)


if __name__ == "__main__":
    main()
