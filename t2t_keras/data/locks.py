"""Locks on directories, which keep processes from writing to one at the same time."""

import contextlib
import errno
import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TextIO

from t2t_keras.errors import UserError

# Error codes of file systems without locks, such as Lustre mounted without `flock`.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
# What this program writes to its lock files, see `lock`.
_PURPOSE = re.compile(r"(process \d+ on |\d+ parts, \{).*", re.DOTALL)
_MAX_PURPOSE = 1 << 20


class OccupiedDirectory(UserError):
    """Another process has the lock of a directory."""


@contextlib.contextmanager
def lock(
    path: Path, refusal: Callable[[str], UserError] | None, purpose: str = ""
) -> Iterator[None]:
    """Holds a lock on a directory.

    Args:
        path: the lock file in the directory; both are made if absent.
        refusal: maps the purpose of the process that has the lock, or "", to the error
            to raise. None: wait for the lock instead.
        purpose: written to the lock file, for the messages of other processes, unless
            the file has other content.

    Raises:
        UserError: another process has the lock (the error that `refusal` returns).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with open(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        try:
            lock_file(file, waits=refusal is None, path=path)
        except BlockingIOError:
            assert refusal is not None  # otherwise `lock_file` waits
            raise refusal(_purpose(file)) from None
        is_ours = not file.read(1) or _purpose(file) != ""
        if is_ours:
            _replace_content(file, purpose)
        try:
            yield
        finally:
            if is_ours:
                _replace_content(
                    file, ""
                )  # a purpose is valid only while the lock is held


def _replace_content(file: TextIO, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def lock_file(file: IO[str] | IO[bytes], waits: bool, path: Path) -> None:
    """Locks an open file until it is closed, if the file system has locks.

    Args:
        file: the open file.
        waits: whether to wait for another process that has the lock.
        path: the path of the file.

    Raises:
        BlockingIOError: another process has the lock, and `waits` is false.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        print(
            f"{path.parent}: this file system has no locks "
            f"({error.strerror}); make sure that no other process writes there",
            file=sys.stderr,
        )


def purpose_of_holder(path: Path) -> str | None:
    """Returns the purpose of the process that holds a lock; None if none holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    with open(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _purpose(file)
    return None


def _purpose(file: TextIO) -> str:
    """Returns the content of a lock file, if this program has written it."""
    file.seek(0)
    content = file.read(_MAX_PURPOSE)
    return content if _PURPOSE.fullmatch(content) else ""
