"""Files that appear under their name when they are complete, and locks.

A lock on a directory keeps other processes from writing there at the same time.
"""

import contextlib
import errno
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout

from t2t_keras.console import say
from t2t_keras.errors import UserError

_INCOMPLETE = ".incomplete"  # suffix of a file's name while it is written

_OPEN_FILE = re.compile(r"/proc/\d+/(task/\d+/)?fd/\d+")

_NAME_BYTES = 220  # length of a temporary name's stem; 255 bytes are allowed in all

# Error codes of file systems without locks, such as Lustre mounted without `flock`.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

# Error codes of a file that is gone; NFS has the last one.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path, which is renamed to `path` when the block ends.

    The new file has the mode of the old one. If `path` is a link, the link is replaced,
    and its target stays.

    Args:
        path: the path of the finished file.

    Yields:
        The path of a new, empty file, `{path}.RANDOM.incomplete`. It is removed if the
        block raises; if this process is killed, by the next one that writes `path`.
    """
    stem = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    _remove_leftovers(path.parent, stem)
    try:
        incomplete, file_lock = _new_file(path.parent, stem)
    except OSError as error:
        error.filename = str(path)  # users do not know the temporary name
        raise
    try:
        yield incomplete
        if path.is_file() and not path.is_symlink():
            incomplete.chmod(stat.S_IMODE(path.stat().st_mode))
        os.replace(incomplete, path)
    except BaseException:
        incomplete.unlink(missing_ok=True)
        raise
    finally:
        file_lock.release()


def _new_file(directory: Path, stem: str) -> tuple[Path, FileLock]:
    """Makes a temporary file; returns its path and its lock.

    The lock tells other processes that the file is not a leftover.
    """
    while True:
        path = directory / f"{stem}.{secrets.token_hex(4)}{_INCOMPLETE}"
        file_lock = _file_lock(path)
        try:
            path.touch(exist_ok=False)  # a lock would also make the directory
            file_lock.acquire(blocking=False)
        except (FileExistsError, Timeout):  # the lock of who takes it for a leftover
            continue
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return path, file_lock


def _remove_leftovers(directory: Path, stem: str) -> None:
    """Removes the temporary files of processes that were killed."""
    pattern = re.compile(rf"{re.escape(stem)}\.[0-9a-f]{{8}}{re.escape(_INCOMPLETE)}")
    names = os.listdir(directory) if directory.is_dir() else []
    for path in (directory / name for name in names if pattern.fullmatch(name)):
        # Without locks, nothing tells whether another process writes the file.
        with contextlib.suppress(OSError), _file_lock(path).acquire(blocking=False):
            path.unlink()


def _file_lock(path: Path) -> FileLock:
    """Returns a lock that any thread may release, and that SIGKILL frees."""
    return FileLock(path, thread_local=False, fallback_to_soft=False)


@contextlib.contextmanager
def open_lines(path: str | Path) -> Iterator[TextIO]:
    r"""Opens a file for writing lines, in UTF-8 and with `\n` only, atomically.

    If `path` is a link, its target is replaced.
    """
    final = Path(os.path.realpath(path))
    with (
        contextlib.nullcontext(path) if is_special(path) else atomic(final) as target,
        open(target, "w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Writes a file of lines, as `open_lines` does."""
    with open_lines(path) as file:
        file.writelines(f"{line}\n" for line in lines)


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


class OccupiedDirectory(UserError):
    """Another process has the lock of a directory."""


class Lock:
    """A lock on a directory that this process holds; `lock` returns it.

    Args:
        path: the lock file in the directory, which is locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.stat()

    def require_place(self) -> None:
        """Raises UserError if the locked file is no longer at its path.

        Somebody may remove the directory and create another with its name. That one has
        another lock file, so this lock keeps nobody out of it.

        Raises:
            UserError: the directory was removed, renamed or replaced.
        """
        try:
            is_in_place = os.path.samestat(self._file, self._path.stat())
        except OSError as error:
            if error.errno not in _GONE:
                raise
            is_in_place = False
        if not is_in_place:
            raise UserError(
                f"{self._path.parent} was removed, renamed or replaced while this "
                f"process worked there ({self._path.name} is not the file that it has "
                "locked); it writes nothing more there; run the command again, with "
                "another directory if this one is in use"
            )


@contextlib.contextmanager
def lock(path: Path, refusal: Callable[[str], UserError] | None) -> Iterator[Lock]:
    """Holds a lock on a directory.

    Args:
        path: the lock file in the directory; both are made if absent. It says which
            process has the lock.
        refusal: maps the process that has the lock, as "process 1 on host", to the
            error to raise. None: wait for the lock instead.

    Raises:
        UserError: another process has the lock (the error that `refusal` returns).
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path, waits=refusal is None))
        except Timeout:
            holder = ""
            with contextlib.suppress(OSError):  # it has just removed the directory
                holder = path.read_text("utf-8", errors="replace")
            assert refusal is not None  # otherwise `locked` waits
            raise refusal(holder) from None
        with contextlib.suppress(OSError):  # a full disk; only messages lack it
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            path.write_text(holder, "utf-8")
        yield Lock(path)


def has_locks(directory: Path) -> bool:
    """Returns whether the file system of a directory has locks.

    Raises:
        OSError: the directory cannot be written.
    """
    path = directory / f".{secrets.token_hex(4)}{_INCOMPLETE}"
    path.touch(exist_ok=False)
    file_lock = _file_lock(path)
    same_lock = _file_lock(path)
    try:
        with file_lock.acquire(blocking=False), same_lock.acquire(blocking=False):
            return False
    except Timeout:  # of the second one
        return True
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, waits: bool) -> Iterator[None]:
    """Locks a file, if the file system has locks; the file's content stays.

    Args:
        path: the file; it and its directory are made if absent.
        waits: whether to wait for another process that has the lock.

    Raises:
        Timeout: another process has the lock, and `waits` is false.
    """
    file_lock = _file_lock(path)
    try:
        file_lock.acquire(blocking=waits)
    except OSError as error:  # a `Timeout` is one as well
        if error.errno not in _NO_LOCKS:
            raise
        say(
            f"{path.parent}: this file system has no locks "
            f"({error.strerror}); make sure that no other process writes there"
        )
    try:
        yield
    finally:
        file_lock.release()
