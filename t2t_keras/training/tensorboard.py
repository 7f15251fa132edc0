"""TensorBoard's events: charts of loss, quality and speed, training over dev.

`RUN/tensorboard/` has a folder for the training and one for each kind of evaluation,
which TensorBoard draws as curves of the same charts.
"""

from pathlib import Path

import tensorflow as tf

from t2t_keras.training.hooks import Hook

_SPEEDS = ("tokens_per_s", "steps_per_s", "_share")
_LOSSES = ("nll", "perplexity", "smoothed_loss", "gradient_norm")


def chart(name: str, is_dev: bool) -> str:
    """Returns the chart of a metric, `GROUP/NAME`.

    The loss of dev has no label smoothing, so that it is in the chart of `nll`.

    Args:
        name: the name in `metrics.jsonl`.
        is_dev: whether it is of an evaluation.
    """
    if name == "loss":
        name = "nll" if is_dev else "smoothed_loss"
    if name in _LOSSES:
        return f"loss/{name}"
    if name.endswith(_SPEEDS):
        return f"speed/{name}"
    return f"quality/{name}" if is_dev else f"training/{name}"


class TensorBoard(Hook):
    """Writes the metrics of a training for TensorBoard."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "tensorboard"
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Writes each metric as a curve "train"."""
        self._write(step, "train", metrics)

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Writes each metric as a curve with the name of the evaluation."""
        self._write(step, label, metrics)

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            writer.close()

    def _write(self, step: int, label: str, metrics: dict[str, float]) -> None:
        if label not in self._writers:
            folder = str(self._folder / label)
            self._writers[label] = tf.summary.create_file_writer(folder)
        writer = self._writers[label]
        with writer.as_default(step=step):
            for name, value in metrics.items():
                # TensorBoard keeps float32, which a perplexity may overflow.
                scalar = tf.constant(value, tf.float64)
                tf.summary.scalar(chart(name, label != "train"), scalar)
        writer.flush()
