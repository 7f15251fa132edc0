"""Draws the learning curves of one run or several: losses, and BLEU or F1 on dev.

    pip install t2t_keras[plot]
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

METRICS = ("bleu", "f1_errors_as_zero")


def main() -> None:
    """Reads the runs and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--write", required=True, metavar="FILE", help="an SVG or PNG")
    args = parser.parse_args()

    figure, (losses, scores) = pyplot.subplots(1, 2, figsize=(10, 4))
    for number, path in enumerate(args.runs):
        lines = read(path)
        run = path.parent if path.name == "metrics.jsonl" else path
        name = run.name.removesuffix(".jsonl")
        color = f"C{number}"
        # As dev's loss. Older records have only the label-smoothed loss.
        likelihood = any("nll" in line for line in lines)
        key, kind = ("nll", "") if likelihood else ("loss", "label-smoothed ")
        draw(losses, lines, "train", key, color=color, label=f"{name}, {kind}training")
        dev = {"color": color, "marker": "o", "linestyle": "--"}
        draw(losses, lines, "dev", "loss", label=f"{name}, dev", **dev)
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


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of `metrics.jsonl`."""
    file = path / "metrics.jsonl" if path.is_dir() else path
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def draw(
    axes: Any, lines: list[dict[str, Any]], kind: str, key: str, **style: Any
) -> None:
    """Plots a metric of all lines of one kind over the steps, if they have it."""
    points = [(x["step"], x[key]) for x in lines if x["kind"] == kind and key in x]
    if points:
        axes.plot(*zip(*points, strict=True), **style)


if __name__ == "__main__":
    main()
