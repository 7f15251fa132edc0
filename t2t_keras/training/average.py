"""Averages of checkpoints (6.1)."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.training.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    write_checkpoint,
)


def average_checkpoints(paths: Sequence[Path], output: Path) -> None:
    """Writes the mean of the checkpoints' weights, one tensor after the other.

    Raises:
        UserError: the checkpoints do not hold the same weights.
    """
    checkpoints = [Checkpoint(path) for path in paths]
    shapes = _weight_shapes(checkpoints[-1])
    for checkpoint in checkpoints:
        different = _weight_shapes(checkpoint).items() ^ shapes.items()
        if different:
            raise UserError(
                f"cannot average {checkpoint.path} with {checkpoints[-1].path}: "
                f"'{min(different)[0]}' is not the same in both"
            )
    mean = {"step": np.int64(checkpoints[-1].step)}
    for name in shapes:
        total = sum(c.tensor(name).astype(np.float64) for c in checkpoints)
        mean[name] = (total / len(checkpoints)).astype(np.float32)
    write_checkpoint(output, mean)


def average_run(
    output_dir: Path, last: int | None = None, minutes: float | None = None
) -> Path:
    """Averages the newest checkpoints of a run.

    Args:
        output_dir: of the run.
        last: how many of the newest.
        minutes: instead, all that were written in so many minutes before the newest.

    Returns:
        The path of the average, `average.ckpt-STEP`.

    Raises:
        UserError: there are fewer checkpoints.
    """
    directory = CheckpointDirectory(output_dir)
    paths = [directory.path(step) for step in directory.steps()]
    if minutes is not None and paths:
        newest = _written(paths[-1])
        paths = [path for path in paths if newest - _written(path) <= 60 * minutes]
    elif last is not None:
        if last < 1 or len(paths) < last:
            raise UserError(f"--last {last}: {output_dir} has {len(paths)} checkpoints")
        paths = paths[-last:]
    if not paths:
        raise UserError(f"{output_dir} has no checkpoint")
    output = directory.path(Checkpoint(paths[-1]).step, "average.ckpt")
    average_checkpoints(paths, output)
    return output


def _weight_shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(shape)
        for name, shape in sorted(checkpoint.shapes.items())
        if name.startswith("model/")
    }


def _written(path: Path) -> float:
    return os.path.getmtime(path.with_name(path.name + ".index"))
