"""Checkpoint averaging (6.1).

The paper averages the last 5 checkpoints of base and the last 20 of big, which were
written every 10 minutes: `t2t train --save_minutes 10 --average_last 5`.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.runs.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    remove_incomplete,
    write_checkpoint,
)


def mean_weights(paths: Sequence[Path]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each weight's name and its mean over the checkpoints.

    Only one tensor at a time is in memory, in double precision.

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
    for name, shape in shapes.items():
        total = np.zeros(shape)
        for checkpoint in checkpoints:
            total += checkpoint.tensor(name)
        yield name, (total / len(checkpoints)).astype(np.float32)


def average_checkpoints(paths: Sequence[Path], output: Path) -> None:
    """Writes the mean of the checkpoints' weights, with the last checkpoint's step.

    It takes the memory of one model, whatever the number of checkpoints.

    Raises:
        UserError: the checkpoints do not hold the same weights.
    """
    mean = {name: tf.constant(value) for name, value in mean_weights(paths)}
    step = Checkpoint(paths[-1]).step
    write_checkpoint(output, mean | {"step": tf.constant(step, tf.int64)})


def average_run(
    output_dir: str | Path, last: int | None = None, minutes: float | None = None
) -> Path:
    """Averages the newest checkpoints of a run.

    Args:
        output_dir: the run directory.
        last: number of checkpoints to average.
        minutes: instead, average the checkpoints written at most so many minutes before
            the newest, by the files' modification times.

    Returns:
        The path of the average, `average.ckpt-STEP`.

    Raises:
        UserError: there are fewer checkpoints.
    """
    directory = CheckpointDirectory(Path(output_dir))
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
    remove_incomplete(directory.directory, ["average.ckpt-"])
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
