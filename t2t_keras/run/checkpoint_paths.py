"""The paths of a run's checkpoints, without TensorFlow."""

import re
from pathlib import Path

from t2t_keras.errors import UserError

# The names of checkpoints on the command line, besides steps and paths.
_NAMES = ("latest", "average", "best")


def is_path(name: str | int | Path | None) -> bool:
    """Returns whether a user names a checkpoint by its path, which only one run has."""
    return not (name is None or str(name).isdigit() or name in (*_NAMES, "ema"))


def checkpoint_of(path: str | Path) -> Path:
    """Returns the path of a checkpoint, without the suffix of its file `.index`."""
    return Path(str(path).removesuffix(".index"))


def has_checkpoint(path: Path) -> bool:
    """Returns whether a checkpoint is at the path, which has no suffix."""
    return Path(f"{path}.index").exists()


class CheckpointPaths:
    """The paths of the checkpoints in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def steps(self, prefix: str = "model.ckpt") -> list[int]:
        """Returns the steps of all complete checkpoints, ascending."""
        pattern = re.compile(re.escape(prefix) + r"-(\d+)\.index")
        steps = []
        for path in self.directory.glob("*"):
            if match := pattern.fullmatch(path.name):
                steps.append(int(match[1]))
        return sorted(steps)

    def path(self, step: int, prefix: str = "model.ckpt") -> Path:
        """Returns the path, without suffix, of a step's checkpoint."""
        return self.directory / f"{prefix}-{step}"

    def find(self, name: str | int | Path | None = None) -> Path:
        """Returns the checkpoint that a user means.

        Args:
            name: a step, "latest", "average" or "best" (on dev), a path, or the name
                of a file in the directory; None: the average of the newest step if
                there is one, else the newest checkpoint.

        Raises:
            UserError: there is no such checkpoint.
        """
        newest = self.steps()[-1:]
        averages = self.steps("average.ckpt")[-1:]
        if name is None:
            name = "average" if averages and averages >= newest else "latest"
        name = str(name)
        if name in _NAMES:
            prefix = "model.ckpt" if name == "latest" else f"{name}.ckpt"
            steps = self.steps(prefix)
            if not steps:
                raise UserError(f"{self.directory} has no {name} checkpoint")
            return self.path(steps[-1], prefix)
        path = self.path(int(name)) if name.isdigit() else checkpoint_of(name)
        if not has_checkpoint(path) and has_checkpoint(self.directory / path):
            path = self.directory / path
        if not has_checkpoint(path):
            steps_text = ", ".join(map(str, self.steps())) or "none"
            raise UserError(
                f"--checkpoint: there is no {path} (checkpoints at steps: {steps_text})"
            )
        return path
