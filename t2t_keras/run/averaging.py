"""Averages of checkpoints (6.1)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_keras.arguments import checked
from t2t_keras.errors import UserError
from t2t_keras.quantity import quantity
from t2t_keras.run.checkpoint import Checkpoint, remove_incomplete, write_checkpoint
from t2t_keras.run.checkpoint_directory import CheckpointDirectory
from t2t_keras.run.config import is_run
from t2t_keras.run.history import record_event
from t2t_keras.type_hints import Positive


@checked
def average_run(output_dir: str | Path, count: Positive) -> Path:
    """Writes the average of the newest checkpoints of a run.

    The paper averages the last 5 checkpoints of base and the last 20 of big, which were
    written every 10 minutes: `--train_options save_minutes=10,average_last=5`. It takes
    the memory of one model, whatever the number of checkpoints.

    Args:
        output_dir: a run directory, or any other directory with checkpoints.
        count: the number of checkpoints to average.

    Returns:
        The path of the average, `average.ckpt-STEP`, with the last checkpoint's step.

    Raises:
        UserError: there are fewer checkpoints, or they do not hold the same weights.
    """
    directory = CheckpointDirectory(Path(output_dir))
    steps = directory.steps()
    if len(steps) < count:
        raise UserError(
            f"--last {count}: {directory.directory} has "
            f"{quantity(len(steps), 'checkpoints')}"
        )
    steps = steps[-count:]
    means = mean_weights([directory.path(step) for step in steps])
    tensors = {name: tf.constant(value) for name, value in means}
    remove_incomplete(directory.directory, ["average.ckpt-"])
    average = directory.path(steps[-1], "average.ckpt")
    write_checkpoint(average, tensors | {"step": tf.constant(steps[-1], tf.int64)})
    if is_run(output_dir):
        facts = {"checkpoint": average.name, "steps": steps}
        record_event(directory.directory, "average", **facts)
    return average


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


def _weight_shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(shape)
        for name, shape in sorted(checkpoint.shapes.items())
        if name.startswith("model/")
    }
