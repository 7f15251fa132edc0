"""Paths that TensorFlow can read.

TensorFlow takes the path of a checkpoint for a pattern: it writes one under `run[1]`,
or under a path with a backslash, and then finds no file that matches. It takes no path
that is not UTF-8. So it reads such a path through links in a temporary directory, whose
path is plain.
"""

import os
import re
import tempfile
import weakref
from pathlib import Path

from t2t_keras.data.remove_directory import remove_directory
from t2t_keras.errors import UserError

_WILDCARDS = re.compile(r"[*?\[\\]")
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")  # as Python has it in a path


class PlainPath:
    """A path in UTF-8, without wildcards, that leads to a checkpoint or a directory.

    The links are removed when the object is.

    Args:
        path: a directory, or a checkpoint without suffix.

    Attributes:
        path: the plain path; the given one if it is plain.

    Raises:
        UserError: the directory of temporary files has wildcards as well.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not has_wildcards(self.path) and not _ESCAPED_BYTE.search(str(path)):
            return
        temporary = tempfile.gettempdir()
        if has_wildcards(temporary):
            raise UserError(
                f"TensorFlow can read neither {path} nor links to it in "
                f"{temporary}, because it takes *, ?, [ and \\ in paths for "
                "wildcards; rename the directory, or set TMPDIR to another one"
            )
        directory = Path(tempfile.mkdtemp(prefix="t2t-"))
        weakref.finalize(self, remove_directory, directory, ignore_errors=True)
        parent = self.path.absolute().parent
        if self.path.is_dir():
            names = {self.path.name: "directory"}
        else:
            stem = f"{self.path.name}."
            matches = [name for name in os.listdir(parent) if name.startswith(stem)]
            names = {name: f"checkpoint.{name.removeprefix(stem)}" for name in matches}
        for name, link in names.items():
            (directory / link).symlink_to(parent / name)
        self.path = directory / ("directory" if self.path.is_dir() else "checkpoint")


def has_wildcards(path: str | Path) -> bool:
    """Returns whether TensorFlow takes a path for a pattern."""
    return _WILDCARDS.search(str(path)) is not None
