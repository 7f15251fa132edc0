"""The variables in tensor2tensor's checkpoints of a Transformer (since version 1.4)."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_keras.errors import UserError, first_line
from t2t_keras.run.checkpoint import UNREADABLE
from t2t_keras.run.config import checkpoint_of

from .extended_model import TARGET_SPACES

TARGET_SPACE_KERNEL = "body/target_space_embedding/kernel"

_SCOPE = "transformer/"
_EMBEDDING_SHARD = re.compile(_SCOPE + r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)")
_STEP = re.compile(r"-(\d+)\.index$")

# The optimizer's mean of a row without gradients is at most this share of the largest.
_ZERO_MEAN = 1e-9


def list_checkpoints(path: Path) -> list[Path]:
    """Returns the checkpoints of a training directory, the newest last.

    tensor2tensor's averages, which have other names, are only returned if there are no
    other checkpoints.

    Args:
        path: the directory; or a checkpoint, which alone is returned.

    Raises:
        UserError: the directory has no checkpoint.
    """
    if not path.is_dir():
        return [checkpoint_of(path)]
    steps: dict[Path, int] = {}
    averages: dict[Path, int] = {}
    for index in path.glob("*.index"):
        match = _STEP.search(index.name)
        if match:
            is_regular = index.name.startswith("model.ckpt-")
            checkpoints = steps if is_regular else averages
            checkpoints[index.with_suffix("")] = int(match[1])
    steps = steps or averages
    if not steps:
        raise UserError(
            f"{path} has no checkpoint; give the path of one, without suffix"
        )
    return sorted(steps, key=steps.__getitem__)


class T2TCheckpoint:
    """The model's variables in a checkpoint.

    Args:
        path: a checkpoint without suffix, `.../model.ckpt-350855`, or a directory,
            whose newest checkpoint is read.

    Attributes:
        path: the checkpoint.
        unread: the names of the variables that have not been read.

    Raises:
        UserError: there is no checkpoint, or it is not of a Transformer.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = list_checkpoints(Path(path))[-1]
        if not self.path.with_name(self.path.name + ".index").exists():
            raise UserError(f"{self.path} is not a checkpoint: it has no .index file")
        try:
            self._reader = tf.train.load_checkpoint(str(self.path))
        except UNREADABLE as error:
            raise self._damaged(error) from None
        names = self._reader.get_variable_to_shape_map()
        self.unread = {name for name in names if name.startswith(_SCOPE)}
        if not self.unread:
            raise UserError(
                f"checkpoint {self.path} is not of tensor2tensor's transformer: no "
                f"name of a variable begins with {_SCOPE}"
            )
        if any(re.search("/(qkv|q|kv)_transform", name) for name in self.unread):
            raise UserError(
                f"checkpoint {self.path} was written by a tensor2tensor older than "
                "1.4, whose attention variables were others (qkv_transform); it cannot "
                "be read"
            )

    @property
    def step(self) -> int:
        """The number of updates; 0 for tensor2tensor's averages."""
        if not self._reader.has_tensor("global_step"):
            return 0
        return int(self._tensor("global_step"))

    def has(self, name: str) -> bool:
        """Returns whether the variable `transformer/NAME` exists."""
        return self._reader.has_tensor(_SCOPE + name)

    def read(self, name: str) -> np.ndarray:
        """Returns `transformer/NAME` as float32.

        Raises:
            UserError: there is no such variable.
        """
        if not self.has(name):
            raise UserError(
                f"checkpoint {self.path} has no variable {_SCOPE}{name}, which a model "
                "of its hparams.json has; is it the right hparams.json?"
            )
        self.unread.discard(_SCOPE + name)
        return self._tensor(_SCOPE + name).astype(np.float32)

    def read_joined(self, names: Sequence[str], axis: int) -> np.ndarray:
        """Returns several variables joined along an axis; see `read`.

        Raises:
            UserError: a variable is missing, or the shapes do not go together.
        """
        parts = [self.read(name) for name in names]
        try:
            return np.concatenate(parts, axis)
        except ValueError:
            shapes = ", ".join(str(list(part.shape)) for part in parts)
            raise UserError(
                f"checkpoint {self.path}: {_SCOPE}{names[0]} and the variables that "
                f"belong to it have the shapes {shapes}, which do not go together"
            ) from None

    def read_embeddings(self) -> dict[str, np.ndarray]:
        """Returns the embedding matrices [V, D] by role, with their shards joined.

        Raises:
            UserError: a role has matrices of several vocabularies.
        """
        shards_of_roles: dict[str, dict[int, str]] = {}
        for name in sorted(self.unread):
            match = _EMBEDDING_SHARD.fullmatch(name)
            if not match:
                continue
            role = match[1]
            index = int(match[2])
            shards = shards_of_roles.setdefault(role, {})
            if index in shards:
                raise UserError(
                    f"checkpoint {self.path} has two matrices '{role}', "
                    f"{shards[index]} and {name}; only one can be read"
                )
            shards[index] = name
        matrices = {}
        for role, shards in shards_of_roles.items():
            names = [shards[index].removeprefix(_SCOPE) for index in sorted(shards)]
            matrices[role] = self.read_joined(names, axis=0)
        return matrices

    def target_space_id(self) -> int:
        """Returns the row of the target space embedding that training has used.

        The optimizer's means of all other rows are zero.

        Raises:
            UserError: the checkpoint does not tell.
        """
        rows = set[int]()
        for name, shape in self._reader.get_variable_to_shape_map().items():
            # Adam's means are in ".../kernel/Adam", Adafactor's means of rows in
            # ".../kernel/Adafactor".
            prefix = f"{_SCOPE}{TARGET_SPACE_KERNEL}/Ada"
            if prefix in name and shape[0] == TARGET_SPACES:
                means = np.abs(self._tensor(name).astype(np.float32))
                means = means.reshape(TARGET_SPACES, -1).max(axis=1)
                rows.update(np.flatnonzero(means > _ZERO_MEAN * means.max()).tolist())
        if len(rows) != 1:
            raise UserError(
                f"checkpoint {self.path} does not tell with which target space it was "
                "trained; give --target_space_id: the target_space_id of its Problem, "
                "which is 0 in translation since tensor2tensor 1.5.2 (before, 8 for "
                "German subwords)"
            )
        return rows.pop()

    def _tensor(self, name: str) -> np.ndarray:
        """Returns a variable; raises UserError if the file is damaged."""
        try:
            return self._reader.get_tensor(name)
        except UNREADABLE as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> UserError:
        return UserError(
            f"checkpoint {self.path} is damaged or incomplete ({first_line(error)}); "
            "copy it again"
        )
