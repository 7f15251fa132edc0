"""Checkpoint averaging (6.1).

The paper averages the last 5 checkpoints of base and the last 20 of big, which were
written every 10 minutes: `t2t train --save_minutes 10 --average_last 5`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_keras.option import UserError
from t2t_keras.training.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    remove_incomplete,
    write_checkpoint,
)
from t2t_keras.training.run_dir import RunDirectory
from t2t_keras.training.runs import is_run


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


def average_run(
    output_dir: str | Path, last: int | None = None, minutes: float | None = None
) -> Path:
    """Averages the newest checkpoints of a run.

    It takes the memory of one model, whatever the number of checkpoints. The average
    has the last checkpoint's step.

    Args:
        output_dir: the run directory.
        last: number of checkpoints to average.
        minutes: instead, average the checkpoints written at most so many minutes before
            the newest, by the files' modification times.

    Returns:
        The path of the average, `average.ckpt-STEP`.

    Raises:
        UserError: there are fewer checkpoints, or they do not hold the same weights.
    """
    directory = CheckpointDirectory(Path(output_dir))
    steps = directory.steps()
    if minutes is not None and steps:
        oldest = directory.written(steps[-1]) - 60 * minutes
        steps = [step for step in steps if directory.written(step) >= oldest]
    elif last is not None:
        if last < 1 or len(steps) < last:
            raise UserError(f"--last {last}: {output_dir} has {len(steps)} checkpoints")
        steps = steps[-last:]
    if not steps:
        raise UserError(f"{output_dir} has no checkpoint")
    paths = [directory.path(step) for step in steps]
    mean = {name: tf.constant(value) for name, value in mean_weights(paths)}
    remove_incomplete(directory.directory, ["average.ckpt-"])
    step = Checkpoint(paths[-1]).step
    output = directory.path(step, "average.ckpt")
    write_checkpoint(output, mean | {"step": tf.constant(step, tf.int64)})
    if is_run(output_dir):
        RunDirectory(output_dir).record("average", checkpoint=output.name, steps=steps)
    return output


def _weight_shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(shape)
        for name, shape in sorted(checkpoint.shapes.items())
        if name.startswith("model/")
    }
