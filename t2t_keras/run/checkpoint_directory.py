"""The checkpoints of a run: by step, the best one, and averages."""

import concurrent.futures
import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.run.checkpoint import (
    Checkpoint,
    DamagedCheckpoint,
    delete_checkpoint,
    rename_checkpoint,
    snapshot,
    write_checkpoint,
)
from t2t_keras.run.checkpoint_paths import CheckpointPaths


class CheckpointDirectory(CheckpointPaths):
    """The checkpoints in a directory.

    A training writes its checkpoints in another thread, one at a time, without waiting
    for the disk (`start_saving`). Before it reads or writes checkpoints in any other
    way, it calls `wait`.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._last_save: concurrent.futures.Future[None] | None = None

    def written(self, step: int) -> float:
        """Returns when a step's checkpoint was written, in seconds since 1970."""
        return os.path.getmtime(f"{self.path(step)}.index")

    def save(
        self,
        step: int,
        tensors: Mapping[str, tf.Tensor],
        keep: int,
        replaced_step: int | None = None,
    ) -> None:
        """Writes a checkpoint and deletes all but the newest `keep`.

        Args:
            step: the checkpoint's step.
            tensors: its content.
            keep: how many checkpoints are kept.
            replaced_step: a step whose checkpoint the new one replaces; None: no step.
        """
        write_checkpoint(self.path(step), tensors)
        if replaced_step is not None:
            delete_checkpoint(self.path(replaced_step))
        for old_step in self.steps()[:-keep]:
            delete_checkpoint(self.path(old_step))

    def require_space(
        self,
        variables: Mapping[str, tf.Variable],
        weights: Mapping[str, tf.Variable],
        saves: int,
        keep: int,
    ) -> None:
        """Refuses checkpoints that would fill the disk before the end of a training.

        Args:
            variables: the content of a checkpoint.
            weights: the content of the best checkpoint, and of an average.
            saves: the number of checkpoints to come.
            keep: how many are kept.

        Raises:
            UserError: there is too little space.
        """
        count = len(self.steps())
        # An older checkpoint is deleted only when the new one is complete.
        new_count = min(count + saves, keep) - count + 1
        needed = new_count * _bytes(variables) + 2 * _bytes(weights)
        free = shutil.disk_usage(self.directory).free
        if needed > free:
            raise UserError(
                f"--output_dir: the checkpoints take {needed / 1e9:.3g} GB more, and "
                f"{free / 1e9:.3g} GB are free in {self.directory}; free disk space, "
                "or keep fewer of them with --train_options keep=N"
            )

    def restore_newest(
        self,
        variables: Mapping[str, tf.Variable],
        added: Mapping[str, tf.Variable],
        say: Callable[[str], None],
    ) -> int:
        """Restores the newest checkpoint that can be read; see `Checkpoint.restore`.

        Returns:
            The checkpoint's step; 0 if there is no checkpoint.

        Raises:
            DamagedCheckpoint: there are checkpoints, and none of them can be read.
        """
        steps = self.steps()
        while steps:
            try:
                checkpoint = Checkpoint(self.path(steps.pop()))
                checkpoint.restore(variables, added)
                return checkpoint.step
            except DamagedCheckpoint as error:
                if not steps:
                    raise
                say(f"{error}; training resumes from step {steps[-1]}")
        return 0

    def set_aside(self, step: int) -> None:
        """Renames the checkpoints after a step to `damaged.*`.

        They could not be read when a training resumed, and the average at its end would
        fail because of them.
        """
        for later_step in self.steps():
            if later_step > step:
                path = self.path(later_step)
                rename_checkpoint(path, path.with_name(f"damaged.{path.name}"))

    def start_saving(
        self,
        step: int,
        variables: Mapping[str, tf.Variable],
        keep: int,
        replaced_step: int | None = None,
    ) -> None:
        """Starts to `save` the present values of the variables, and returns.

        Raises:
            UserError: the previous checkpoint could not be written.
        """
        # First, so that there is never a third copy of the variables in memory.
        self.wait()
        tensors = snapshot(variables, step)
        self._last_save = self._thread.submit(
            self.save, step, tensors, keep, replaced_step
        )

    def wait(self) -> None:
        """Waits until the checkpoint that `start_saving` writes is complete.

        Raises:
            UserError: it could not be written.
        """
        if self._last_save:
            self._last_save.result()

    def raise_error(self) -> None:
        """Raises the error of `wait` if it has occurred already; does not wait."""
        if self._last_save and self._last_save.done():
            self._last_save.result()

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Waits at the end of the `with` block, even if an exception has ended it."""
        try:
            yield
        finally:
            if self._last_save:
                concurrent.futures.wait([self._last_save])
        # Not in `finally`: if the block has raised an error, that one counts.
        self.wait()

    def save_best(self, step: int, tensors: Mapping[str, tf.Tensor]) -> None:
        """Writes the new best checkpoint, and deletes the old one."""
        self.wait()
        write_checkpoint(self.path(step, "best.ckpt"), tensors)
        for old_step in self.steps("best.ckpt"):
            if old_step != step:
                delete_checkpoint(self.path(old_step, "best.ckpt"))


def _bytes(variables: Mapping[str, tf.Variable]) -> int:
    """Returns the size of the variables in a checkpoint."""
    return sum(v.shape.num_elements() * v.dtype.size for v in variables.values())
