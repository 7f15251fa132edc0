"""`metrics.jsonl`: a JSON object for each report and evaluation."""

import json
from pathlib import Path
from typing import TextIO

from t2t_keras.data.atomic_files import open_records
from t2t_keras.errors import UserError
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
        self._file = self._file or open_records(self._path)
        return self._file

    def _write(self, step: int, label: str, metrics: dict[str, float]) -> None:
        file = self._open()
        file.write(json.dumps({"step": step, "kind": label, **metrics}) + "\n")
        file.flush()


def read_evaluations(run_dir: Path, last_step: int) -> dict[int, dict[str, float]]:
    """Returns the metrics on dev by step, up to `last_step`.

    A process that was killed may have written later lines, and part of a line; these
    evaluations are repeated.

    Raises:
        UserError: a line is not a record of a training.
    """
    file = run_dir / NAME
    evaluations: dict[int, dict[str, float]] = {}
    lines = file.read_bytes().split(b"\n") if file.exists() else ()
    for line_number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        except UnicodeDecodeError:
            record = None
        match record:
            case {"step": int(step), "kind": "dev", "loss": float()}:
                if step <= last_step:
                    del record["step"], record["kind"]
                    evaluations[step] = record
            case {"step": int(), "kind": str(label)} if label != "dev":
                pass
            case _:
                raise UserError(
                    f"{file}, line {line_number} is not a record of a training; remove "
                    "the line to do without it"
                )
    return evaluations
