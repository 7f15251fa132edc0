"""A lock on a directory, which is released when its process ends, even on SIGKILL."""

import contextlib
import errno
import fcntl
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TextIO

from t2t_keras.option import UserError

# Error codes of file systems without locks, such as Lustre mounted without `flock`.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def lock(
    path: Path, refusal: Callable[[str], UserError] | None, purpose: str = ""
) -> Iterator[None]:
    """Holds a lock on a directory.

    Args:
        path: the lock file in the directory; both are made if absent.
        refusal: maps the purpose of the process that has the lock, or "", to the error
            to raise. None: wait for the lock instead.
        purpose: written to the lock file, for the messages of other processes.

    Raises:
        UserError: another process has the lock (the error that `refusal` returns).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            lock_file(file, waits=refusal is None)
        except BlockingIOError:
            assert refusal is not None  # or it had waited
            raise refusal(_read(file)) from None
        file.truncate(0)
        file.write(purpose)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)  # the purpose is valid only while the lock is held


def lock_file(file: IO[Any], waits: bool) -> None:
    """Locks an open file until it is closed, if the file system has locks.

    Raises:
        BlockingIOError: another process has the lock, and `waits` is false.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        print(
            f"{Path(file.name).parent}: this file system has no locks "
            f"({error.strerror}); make sure that no other process writes there",
            file=sys.stderr,
        )


def has_locks(directory: Path) -> bool:
    """Returns whether the file system of a directory has locks.

    Raises:
        OSError: the directory cannot be written.
    """
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        with open(file.name, "r+") as other:  # NFS locks only what can be written
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
        return False


def purpose_of_holder(path: Path) -> str | None:
    """Returns the purpose of the process that holds a lock; None if none holds it."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file)
    return None


def _read(file: TextIO) -> str:
    file.seek(0)
    return file.read()
