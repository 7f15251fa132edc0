"""The files and directories in a directory, at any depth."""

import os
from collections.abc import Iterator
from pathlib import Path


def paths_below(directory: str | Path) -> Iterator[Path]:
    """Yields the paths in a directory and in its subdirectories.

    `Path.rglob` and `os.walk` call themselves for each level, and fail after about a
    thousand of them; `rglob` skips what it may not read. Links are not followed.

    Raises:
        OSError: a directory cannot be read.
    """
    directories = [os.fspath(directory)]
    while directories:
        with os.scandir(directories.pop()) as entries:
            for entry in entries:
                yield Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
