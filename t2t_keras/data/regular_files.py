"""Checks of paths to which this program writes, or which it reads more than once.

A directory may come from a stranger, so this program writes only to regular files, and
never through a symbolic link inside a directory. A pipe can be read only once, so it is
refused where texts are read several times.
"""

import os
import re
import stat
from pathlib import Path

from t2t_keras.data.paths_below import paths_below
from t2t_keras.errors import UserError

_OPEN_FILE = re.compile(r"/proc/\d+/(task/\d+/)?fd/\d+")


def open_regular(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Opens a regular file, without following a link.

    Args:
        path: the file.
        flags: see `os.open`.

    Returns:
        The descriptor.

    Raises:
        UserError: there is a link, a directory, a pipe or a device.
        OSError: the file cannot be opened.
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would wait
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise UserError(
                f"{path} is a symbolic link, through which nothing is written; remove "
                "it, or put the file itself there"
            ) from None
        if path.exists() and not path.is_file():
            raise _not_regular(path) from None
        raise error from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


def _not_regular(path: Path) -> UserError:
    return UserError(f"{path} is not a regular file; remove it")


def refuse_links(directory: Path) -> None:
    """Raises UserError if a directory that only this program fills has links.

    Raises:
        UserError: there is a symbolic link, or the directory is one.
    """
    for path in (directory, *paths_below(directory)):
        if path.is_symlink():
            raise UserError(
                f"{path} is a symbolic link, and this program writes none there; "
                "remove it"
            )


def refuse_pipes(*paths: str | Path) -> None:
    """Refuses files that can be read only once.

    Raises:
        UserError: a path is a pipe or a device.
    """
    for path in paths:
        if is_pipe(path):
            raise UserError(
                f"{path} is a pipe or a device, which can be read only once, but its "
                "texts are read several times; write them into a file"
            )


def is_pipe(path: str | Path) -> bool:
    """Returns whether a path is a pipe or a device, which can be read only once."""
    path = Path(path)
    return path.exists() and not (path.is_file() or path.is_dir())


def is_special(path: str | Path) -> bool:
    """Returns whether a path is a pipe, a device, or an open file, as `/dev/stdout`."""
    step = Path(path)
    for _ in range(40):  # the limit of the operating system
        if not step.is_symlink():
            break
        if _OPEN_FILE.fullmatch(f"{step.parent.resolve()}/{step.name}"):
            return True
        step = step.parent / step.readlink()
    return Path(path).exists() and not Path(path).is_file()
