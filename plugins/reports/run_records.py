"""What a run directory has recorded about a training, as lines of JSON."""

import math
from pathlib import Path
from typing import Any

from t2t_keras.files.json_files import read_log, without_repeated_steps

Record = dict[str, Any]


def metric_records(run_dir: Path, warns: bool = True) -> dict[str, list[Record]]:
    """Returns the records of `metrics.jsonl` by kind; see `without_repeated_steps`.

    Args:
        run_dir: the run directory.
        warns: whether to warn of damaged lines.
    """
    by_kind: dict[str, list[Record]] = {"train": [], "dev": []}
    path = run_dir / "metrics.jsonl"
    for record in read_log(
        path, lambda fields: isinstance(fields.get("step"), int), warns
    ):
        by_kind.setdefault(str(record.get("kind")), []).append(record)
    return {name: without_repeated_steps(lines) for name, lines in by_kind.items()}


def values(records: list[Record], name: str) -> list[tuple[int, float]]:
    """Returns step and value of the records that have a finite number of that name."""
    points = []
    for record in records:
        value = record.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            points.append((record["step"], float(value)))
    return points


def training_seconds(records: list[Record]) -> float:
    """Returns the time of all steps, without evaluations, from records of training."""
    seconds = 0.0
    last_step = 0
    for step, rate in values(records, "steps_per_s"):
        if rate > 0:
            seconds += (step - last_step) / rate
        last_step = step
    return seconds


def target_tokens(records: list[Record]) -> float:
    """Returns how many target tokens a training has seen, from its records."""
    tokens = 0.0
    last_step = 0
    for record in records:
        match record:
            case {
                "step": int(step),
                "steps_per_s": float(rate),
                "target_tokens_per_s": float(speed),
            } if rate > 0:
                tokens += (step - last_step) * speed / rate
                last_step = step
    return tokens
