"""`metrics.jsonl`: a JSON object for each report and evaluation."""

import json
from pathlib import Path
from typing import Any, TextIO

from t2t_keras.data.log_files import open_log, read_log
from t2t_keras.training.hooks import Hook

NAME = "metrics.jsonl"


class MetricsFile(Hook):
    """Writes the metrics of a training, with the fields "step" and "kind"."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / NAME
        self._file: TextIO | None = None

    def on_train_begin(self) -> None:
        """Opens the file, so that an error is reported before the first step."""
        self._open()

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Writes a line of kind "train"."""
        self._write(step, "train", metrics)

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Writes a line whose kind is the label."""
        self._write(step, label, metrics)

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            self._file.close()
            self._file = None

    def _open(self) -> TextIO:
        self._file = self._file or open_log(self._path)
        return self._file

    def _write(self, step: int, label: str, metrics: dict[str, float]) -> None:
        file = self._open()
        file.write(json.dumps({"step": step, "kind": label, **metrics}) + "\n")
        file.flush()


def read_evaluations(run_dir: Path, last_step: int) -> dict[int, dict[str, float]]:
    """Returns the metrics on dev by step, up to `last_step`.

    A process that was killed may have written later lines; these evaluations are
    repeated.
    """
    evaluations: dict[int, dict[str, float]] = {}
    for record in read_log(run_dir / NAME, _is_record):
        step = record.pop("step")
        if record.pop("kind") == "dev" and step <= last_step:
            evaluations[step] = record
    return evaluations


def _is_record(line: dict[str, Any]) -> bool:
    """Returns whether a line is a record of a training."""
    match line:
        case {"step": int(), "kind": "dev"}:
            return isinstance(line.get("loss"), float)
        case {"step": int(), "kind": str()}:
            return True
    return False
