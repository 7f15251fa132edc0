"""The files of a training's metrics: JSON lines, samples, TensorBoard's events.

`RUN/tensorboard/` has a folder for the training and one for each kind of evaluation,
which TensorBoard draws as curves of the same charts.
"""

import json
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.files.json_files import open_log, read_log
from t2t_keras.run.history import SAMPLES_FILE, samples_of, write_samples
from t2t_keras.training.hooks import Hook

METRICS_FILE = "metrics.jsonl"


class MetricsFile(Hook):
    """Writes the metrics of a training, with the fields "step" and "kind"."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / METRICS_FILE

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Writes a line of kind "train"."""
        self._write(step, "train", metrics)

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Writes a line whose kind is the label."""
        self._write(step, label, metrics)

    def _write(self, step: int, label: str, metrics: dict[str, float]) -> None:
        with open_log(self._path) as file:
            file.write(json.dumps({"step": step, "kind": label, **metrics}) + "\n")


def read_evaluations(run_dir: Path, last_step: int) -> dict[int, dict[str, float]]:
    """Returns the metrics on dev by step, up to `last_step`.

    A process that was killed may have written later lines; these evaluations are
    repeated.
    """
    evaluations: dict[int, dict[str, float]] = {}
    for record in read_log(run_dir / METRICS_FILE, _is_record):
        step = record.pop("step")
        if record.pop("kind") == "dev" and step <= last_step:
            evaluations[step] = record
    return evaluations


def _is_record(line: dict[str, Any]) -> bool:
    """Returns whether a line is a record of a training."""
    match line:
        case {"step": int(), "kind": "dev"}:
            return isinstance(line.get("nll"), float)
        case {"step": int(), "kind": str()}:
            return True
    return False


class SampleFile(Hook):
    """Writes some of the sentences that each evaluation on dev has decoded.

    This hook comes before the one that writes `metrics.jsonl`, because a recorded
    evaluation is not repeated after a kill.
    """

    def __init__(self, run_dir: Path, evaluator: Evaluator) -> None:
        self._path = run_dir / SAMPLES_FILE
        self._evaluator = evaluator

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Writes the sentences of an evaluation; those of averages are not written."""
        decoded = self._evaluator.decoded
        if label != "dev" or decoded is None:
            return
        record = samples_of(step, self._evaluator.problem, decoded)
        with open_log(self._path) as file:
            write_samples(file, record)


_SPEEDS = ("tokens_per_s", "steps_per_s", "_share")
_LOSSES = ("nll", "perplexity", "smoothed_loss", "gradient_norm")


def chart(name: str, is_dev: bool) -> str:
    """Returns the chart of a metric, `GROUP/NAME`, for its name in `metrics.jsonl`."""
    if name == "loss":
        name = "smoothed_loss"
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
