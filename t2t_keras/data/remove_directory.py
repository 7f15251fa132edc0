"""Removes a directory with everything in it, at any depth."""

import contextlib
import itertools
import os
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_directory(directory: str | Path, ignore_errors: bool = False) -> None:
    """Removes a directory with everything in it; links are not followed.

    Before Python 3.13, `shutil.rmtree` calls itself for each level, and fails after
    about a thousand of them. Here directories are moved to the first level before they
    are emptied, so that neither calls nor open files nor paths become deep.

    Args:
        directory: the directory.
        ignore_errors: whether to pass over what cannot be removed, or is not there.

    Raises:
        OSError: something cannot be removed, or the directory is absent or a link.
    """
    handler = (
        contextlib.suppress(OSError) if ignore_errors else contextlib.nullcontext()
    )
    with handler:
        root = os.open(directory, _DIRECTORY)
        try:
            _empty(root, handler)
        finally:
            os.close(root)
        os.rmdir(directory)


def _empty(root: int, handler: contextlib.AbstractContextManager[None]) -> None:
    """Removes everything in a directory.

    Args:
        root: the descriptor of the directory.
        handler: the context in which a path is removed.
    """
    names = _remove_files(root, handler)
    taken = {*os.listdir(root)}
    free_names = (name for name in map(str, itertools.count()) if name not in taken)
    while names:
        name = names.pop()
        with handler:
            folder = os.open(name, _DIRECTORY, dir_fd=root)
            try:
                for inner in _remove_files(folder, handler):
                    moved = next(free_names)
                    with handler:
                        os.rename(inner, moved, src_dir_fd=folder, dst_dir_fd=root)
                        names.append(moved)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=root)


def _remove_files(
    folder: int, handler: contextlib.AbstractContextManager[None]
) -> list[str]:
    """Removes the files and links in a directory; returns its subdirectories."""
    with os.scandir(folder) as entries:
        children = list(entries)
    names = []
    for entry in children:
        if entry.is_dir(follow_symlinks=False):
            names.append(entry.name)
        else:
            with handler:
                os.unlink(entry.name, dir_fd=folder)
    return names
