"""Checks of flags that run before TensorFlow is imported, which takes seconds."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2t_keras.cli.lines import read_lines
from t2t_keras.option import UserError


def require_directory(flag: str, path: str | None) -> None:
    """Refuses a directory that does not exist."""
    if path is not None and not Path(path).is_dir():
        raise UserError(f"--{flag}: there is no directory {path}")


def require_readable(path: str | None) -> None:
    """Refuses a text file that cannot be read; None stands for no file."""
    if path is None:
        return
    # A pipe can be read only once.
    if Path(path).is_file() or Path(path).is_dir() or not Path(path).exists():
        next(read_lines(path), None)


def require_writable(flag: str, path: str | None) -> None:
    """Refuses an output file that cannot be written."""
    if path is None:
        return
    file, parent = Path(path), Path(path).parent
    if not file.absolute().parent.is_dir():
        raise UserError(f"--{flag}: there is no directory {parent}; make it first")
    if file.is_dir():
        raise UserError(f"--{flag}: {path} is a directory; name a file")
    if not os.access(file if file.exists() else parent, os.W_OK):
        raise UserError(f"--{flag}: {path} cannot be written; name another file")


def require_other_file(flag: str, path: str | None, source: str | None) -> None:
    """Refuses an output file that is the input."""
    if path is None or source is None or not Path(path).exists():
        return
    if Path(path).is_file() and os.path.samefile(path, source):
        raise UserError(f"--{flag}: {path} is the input; name another file")


def require_lines(
    files: Mapping[str, Sequence[str]], origin: str, lines: Sequence[str]
) -> None:
    """Refuses files with another number of lines than one that they belong to.

    Args:
        files: the lines of each file, by its name.
        origin: the name of the other file, or of what its lines come from.
        lines: the other file's.
    """
    for name, own in files.items():
        if len(own) != len(lines):
            raise UserError(
                f"{name} and {origin} differ in their number of lines, {len(own)} "
                f"and {len(lines)}; line n of one must belong to line n of the other"
            )
