"""Draws `distillation.svg`: quality against speed, from the table in `scores.json`.

python docs/results/draw_speed.py
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

HERE = Path(__file__).parent


def main() -> None:
    """Draws a line for each model, through its beam sizes."""
    table = json.loads((HERE / "scores.json").read_text())["tables"]["distillation"]
    speed, quality = table["columns"][-2:]
    models: dict[str, list[tuple[float, float]]] = {}
    for label, row in table["rows"].items():
        points = models.setdefault(label.split(", beam")[0], [])
        points.append((row[speed], row[quality]))
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for label, points in models.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set_xlabel(speed)
    axes.set_ylabel(quality)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(HERE / "distillation.svg")


if __name__ == "__main__":
    main()
