"""Checkpoints: TensorFlow tensor bundles with documented tensor names.

A checkpoint `model.ckpt-1000` consists of two files, `.index` and
`.data-00000-of-00001`, which `tf.train.load_checkpoint` reads. Its tensors are

    step                     int64, the updates done
    model/NAME               a weight, such as
                             model/encoder/layer_0/self_attention/query_key_value/kernel
    adam/m/NAME, adam/v/NAME Adam's or AdamW's moments of the weight
    PREFIX/NAME              the state of another optimizer, such as adafactor/rows
    ema/NAME                 the weight's moving average, with hparams.ema_decay
    loss_scale/*             state of the `LossScale`, with compute_dtype float16
    skipped/*                the numbers of skipped updates

The names depend on the layers' names and not on attributes of Python objects. The
position in the data follows from the step, see `data.batch_plan.BatchPlan`. An average
of checkpoints, `average.ckpt-1000`, and the checkpoint that was best on dev,
`best.ckpt-1000`, have only the step and the weights.
"""

import concurrent.futures
import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.checking import Positive, checked
from t2t_keras.errors import UserError, first_line, quantity
from t2t_keras.files.atomic import Lock
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.config import CheckpointPaths, is_run
from t2t_keras.run.history import record_event

_DATA = ".data-00000-of-00001"
_SUFFIXES = (".index", _DATA)  # without the index, there is no checkpoint
_INCOMPLETE = "incomplete."  # prefix of a file's name while it is written


def write_checkpoint(path: Path, tensors: Mapping[str, tf.Tensor]) -> None:
    """Writes a checkpoint atomically, even on SIGKILL.

    Raises:
        UserError: the disk is full or the directory cannot be written.
    """
    temporary = path.with_name(f"{_INCOMPLETE}{path.name}")
    names = sorted(tensors)
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(temporary),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
            )
        for suffix in (_DATA, ".index"):  # the index makes the files a checkpoint
            _flush(f"{temporary}{suffix}")
            os.replace(f"{temporary}{suffix}", f"{path}{suffix}")
        _flush(path.parent)
    except tf.errors.OpError as error:
        raise UserError(
            f"cannot write checkpoint {path}: {_reason(error)}; free "
            "disk space or make the directory writable, and run the same command again"
        ) from None
    except OSError as error:
        raise UserError(f"cannot write checkpoint {path}: {error.strerror}") from None
    finally:
        remove_incomplete(path.parent, f"{path.name}.")


def _flush(path: str | Path) -> None:
    """Waits until a file or a directory is on the disk, as the power may fail."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_checkpoint(path: Path) -> None:
    """Deletes a checkpoint, if it is there."""
    for suffix in _SUFFIXES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def remove_incomplete(directory: Path, prefix: str) -> None:
    """Removes incomplete checkpoints, which killed processes have left.

    No other process may be writing checkpoints whose names begin with the prefix, such
    as "model.ckpt-".
    """
    # TensorFlow appends a random suffix while it writes.
    for path in directory.glob(f"{_INCOMPLETE}{prefix}*"):
        path.unlink(missing_ok=True)
    for path in directory.glob(f"{prefix}*{_DATA}"):
        if not Path(str(path).removesuffix(_DATA) + ".index").exists():
            path.unlink(missing_ok=True)


def _reason(error: tf.errors.OpError) -> str:
    """Returns the system's error message without TensorFlow's names and paths."""
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]", "", error.message)
    return message.strip().partition("\n")[0].rpartition("; ")[2].strip()


class DamagedCheckpoint(UserError):
    """A file of a checkpoint is truncated, altered or missing."""


# TensorFlow raises these errors when a file of a checkpoint is truncated, empty or
# missing. It turns OutOfRange into IndexError.
UNREADABLE = (tf.errors.OpError, ValueError, IndexError, RuntimeError)


class Checkpoint:
    """A checkpoint on disk, read one tensor at a time.

    Raises:
        DamagedCheckpoint: a file of it is damaged; the methods raise this as well.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = tf.train.load_checkpoint(str(path))
            self.shapes = dict(self._reader.get_variable_to_shape_map())
        except UNREADABLE as error:
            raise self._damaged(error) from error

    @property
    def step(self) -> int:
        """The number of updates before the checkpoint was written."""
        return int(self.tensor("step"))

    def tensor(self, name: str) -> np.ndarray:
        """Returns one tensor as a NumPy array."""
        try:
            return np.asarray(self._reader.get_tensor(name))
        except UNREADABLE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DamagedCheckpoint:
        return DamagedCheckpoint(
            f"checkpoint {self.path} cannot be read ({first_line(error)}); remove its "
            "files to do without it"
        )

    def restore(self, variables: Mapping[str, tf.Variable]) -> None:
        """Assigns the tensors to the variables of their names.

        Raises:
            UserError: a variable is missing in the checkpoint or has another shape.
        """
        for name, variable in variables.items():
            if name not in self.shapes:
                raise UserError(f"checkpoint {self.path} has no tensor '{name}'")
            if list(variable.shape) != self.shapes[name]:
                raise UserError(
                    f"checkpoint {self.path}: '{name}' has shape {self.shapes[name]}, "
                    f"the model's is {list(variable.shape)}"
                )
        for name, variable in variables.items():
            variable.assign(self.tensor(name))


def snapshot(variables: Mapping[str, tf.Variable], step: int) -> dict[str, tf.Tensor]:
    """Returns the tensors of a checkpoint of these variables, in the host's memory.

    Later updates do not change them. From a GPU they are copied here. On the CPU they
    share the variables' memory, and TensorFlow copies each variable before its next
    update. Either way, the tensors take as much of the host's memory as all variables,
    and none of a GPU's.
    """
    with tf.device("CPU:0"):
        tensors = {name: variable.read_value() for name, variable in variables.items()}
        return tensors | {"step": tf.constant(step, tf.int64)}


def model_variables(
    model: Transformer, trainable: bool = False
) -> dict[str, tf.Variable]:
    """Returns all or only the trainable weights by their names in a checkpoint."""
    weights = model.trainable_weights if trainable else model.weights
    return {weight_name(model, weight): weight.value for weight in weights}


def weight_name(model: Transformer, weight: keras.Variable) -> str:
    """Returns the name of a model's weight in a checkpoint."""
    return weight.path.replace(model.name, "model", 1)


def slot_name(prefix: str, weight: str) -> str:
    """Returns a name such as "adam/m/NAME" or "ema/NAME" for "model/NAME"."""
    return f"{prefix}/{weight.removeprefix('model/')}"


class CheckpointDirectory(CheckpointPaths):
    """The checkpoints in a directory.

    A training writes its checkpoints in another thread, one at a time, without waiting
    for the disk (`start_saving`). Before it reads or writes checkpoints in any other
    way, it calls `wait`.

    Attributes:
        lock: the lock of the training that writes here; None: this process trains
            nothing here.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.lock: Lock | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._last_save: concurrent.futures.Future[None] | None = None

    def written(self, step: int) -> float:
        """Returns when a step's checkpoint was written, in seconds since 1970."""
        return os.path.getmtime(f"{self.path(step)}.index")

    def require_place(self) -> None:
        """Raises UserError if the directory is gone; see `Lock.require_place`."""
        if self.lock:
            self.lock.require_place()

    def write(self, path: Path, tensors: Mapping[str, tf.Tensor]) -> None:
        """Writes a checkpoint to a path in the directory."""
        self.require_place()
        write_checkpoint(path, tensors)

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
        self.write(self.path(step), tensors)
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
                "or keep fewer of them with --keep N"
            )

    def restore_newest(
        self, variables: Mapping[str, tf.Variable], say: Callable[[str], None]
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
                checkpoint.restore(variables)
                return checkpoint.step
            except DamagedCheckpoint as error:
                if not steps:
                    raise
                say(f"{error}; training resumes from step {steps[-1]}")
        return 0

    def set_aside(self, step: int) -> None:
        """Renames the checkpoints after a step to `damaged.*`.

        They could not be read when a training resumed, or their weights are damaged. A
        training would resume from them, and the average at its end would have them.
        """
        self.require_place()
        for later_step in self.steps():
            if later_step <= step:
                continue
            path = self.path(later_step)
            for suffix in _SUFFIXES:
                with contextlib.suppress(FileNotFoundError):
                    file = path.with_name(f"{path.name}{suffix}")
                    file.rename(path.with_name(f"damaged.{file.name}"))

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
        self.write(self.path(step, "best.ckpt"), tensors)
        for old_step in self.steps("best.ckpt"):
            if old_step != step:
                delete_checkpoint(self.path(old_step, "best.ckpt"))


def _bytes(variables: Mapping[str, tf.Variable]) -> int:
    """Returns the size of the variables in a checkpoint."""
    return sum(v.shape.num_elements() * v.dtype.size for v in variables.values())


@checked
def average_run(output_dir: str | Path, count: Positive) -> Path:
    """Writes the average of the newest checkpoints of a run.

    The paper averages the last 5 checkpoints of base and the last 20 of big, which were
    written every 10 minutes: `--save_minutes 10 --average_last 5`. It takes
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
    remove_incomplete(directory.directory, "average.ckpt-")
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
