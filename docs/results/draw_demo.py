"""Draws `demo_light.svg` and `demo_dark.svg`, the picture of README.

    make demo
    python docs/results/draw_demo.py runs/demo/run

On the left is the learning curve of the demo, on the right the attention of its model
from each target token to the source, the mean of the heads of the last layer.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from t2t_keras.plugins.reports.attention import SentenceAttention, sentence_attention
from t2t_keras.plugins.reports.run_facts import Record, metric_records, values
from t2t_keras.run.directory import RunDirectory

HERE = Path(__file__).parent
SENTENCE = "Did she wait for every bird?"
# The color of text, the background, and the map of the attention weights.
MODES = {
    "light": ("#1f2328", "#ffffff", "Blues"),
    "dark": ("#e6edf3", "#0d1117", "cividis"),
}
TEXT_SETTINGS = (
    "text.color",
    "axes.labelcolor",
    "axes.edgecolor",
    "axes.titlecolor",
    "xtick.color",
    "ytick.color",
)
LOSS_COLOR = "#3b82f6"
BLEU_COLOR = "#d97706"


def main() -> None:
    """Reads the run and writes a picture for each mode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--sentence", default=SENTENCE, help="what is translated")
    args = parser.parse_args()
    records = metric_records(args.run)
    attention = sentence_attention(RunDirectory(args.run).translator(), args.sentence)
    for mode, (text_color, background, color_map) in MODES.items():
        settings = dict.fromkeys(TEXT_SETTINGS, text_color)
        # With a fixed salt, the same picture has the same bytes.
        settings |= {"axes.facecolor": background, "svg.hashsalt": "demo"}
        with pyplot.rc_context(settings):
            figure, (curve, weights) = pyplot.subplots(
                1, 2, figsize=(10, 3.8), facecolor=background
            )
            draw_curve(curve, records)
            draw_attention(weights, attention, color_map)
            figure.tight_layout(w_pad=3)
            figure.savefig(HERE / f"demo_{mode}.svg", metadata={"Date": None})
            pyplot.close(figure)


def draw_curve(axes: Axes, records: dict[str, list[Record]]) -> None:
    """Draws the loss of training, and BLEU on dev, over the updates."""
    losses = values(records["train"], "nll")
    axes.plot(*zip(*losses, strict=True), color=LOSS_COLOR, linewidth=2)
    axes.set_title("make demo: a toy grammar, two CPU cores")
    axes.set_xlabel("updates")
    axes.set_ylabel("cross-entropy per token", color=LOSS_COLOR)
    axes.set_ylim(0)
    axes.grid(alpha=0.2)
    scores = values(records["dev"], "bleu")
    right = axes.twinx()
    right.plot(*zip(*scores, strict=True), color=BLEU_COLOR, marker="o", linewidth=2)
    right.set_ylabel("BLEU on dev, beam search", color=BLEU_COLOR)
    right.set_ylim(0, 105)


def draw_attention(axes: Axes, attention: SentenceAttention, color_map: str) -> None:
    """Draws the cross-attention of the last layer: a row for each target token."""
    weights = attention.cross[-1].mean(axis=0)  # [T, S]
    image = axes.imshow(weights, cmap=color_map, vmin=0, vmax=1, aspect="auto")
    axes.set_title("Attention to the source, last layer")
    axes.set_xticks(range(len(attention.source)), attention.source, rotation=45)
    axes.set_yticks(range(len(attention.target)), attention.target)
    axes.figure.colorbar(image, ax=axes, label="weight")


if __name__ == "__main__":
    main()
