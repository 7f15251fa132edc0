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

import contextlib
import glob
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.errors import UserError, first_line
from t2t_keras.model.transformer import Transformer

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
        remove_incomplete(path.parent, [f"{path.name}."])


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


def rename_checkpoint(path: Path, new_path: Path) -> None:
    """Renames the files of a checkpoint, which may be incomplete."""
    for suffix in _SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{new_path}{suffix}")


def remove_incomplete(directory: Path, prefixes: Sequence[str]) -> None:
    """Removes incomplete checkpoints, which killed processes have left.

    No other process may be writing checkpoints whose names begin with one of the
    prefixes, such as "model.ckpt-".
    """
    for prefix in prefixes:
        # TensorFlow appends a random suffix while it writes.
        for path in directory.glob(f"{_INCOMPLETE}{glob.escape(prefix)}*"):
            path.unlink(missing_ok=True)
        for path in directory.glob(f"{glob.escape(prefix)}*{_DATA}"):
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

    def restore(
        self,
        variables: Mapping[str, tf.Variable],
        added: Mapping[str, tf.Variable] | None = None,
    ) -> None:
        """Assigns the tensors to the variables of their names.

        Checkpoints of early versions may lack the `added` variables.

        Raises:
            UserError: a variable is missing in the checkpoint or has another shape.
        """
        variables = dict(variables)
        for name, variable in (added or {}).items():
            if name in self.shapes:
                variables[name] = variable
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
