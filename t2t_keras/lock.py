"""A lock on a directory, which ends with its process, even if that is killed."""

import contextlib
import errno
import fcntl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from t2t_keras.errors import UserError

# What file systems without locks answer, such as Lustre mounted without `flock`.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def lock(
    path: Path, refusal: Callable[[str], UserError] | None, purpose: str = ""
) -> Iterator[None]:
    """Holds a lock.

    Args:
        path: a file in the directory that is worked in; both are made if absent.
        refusal: returns the error to raise when another process has the lock, given
            the purpose that it has stated, or "". None: to wait for it instead.
        purpose: what others shall know of the work.

    Raises:
        UserError: the `refusal`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            assert refusal is not None  # or flock had waited
            raise refusal(_read(file)) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            print(
                f"{path.parent}: this file system has no locks ({error.strerror}); "
                "make sure that no other process writes there",
                file=sys.stderr,
            )
        file.truncate(0)
        file.write(purpose)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)  # what it says is true of its holder only


def purpose_of_holder(path: Path) -> str | None:
    """Returns what the process that holds a lock works for; None if none does."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file)
    return None


def _read(file: TextIO) -> str:
    file.seek(0)
    return file.read()
