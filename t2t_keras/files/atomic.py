"""Files that appear under their name when they are complete, and locks.

A lock on a directory keeps other processes from writing there at the same time.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TextIO

from t2t_keras.errors import UserError

_INCOMPLETE = ".incomplete"  # suffix of a file's name while it is written


_OPEN_FILE = re.compile(r"/proc/\d+/(task/\d+/)?fd/\d+")


_NAME_BYTES = 220  # length of a temporary name's stem; 255 bytes are allowed in all


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path, which is renamed to `path` when the block ends.

    If `path` is a link, the link is replaced, and its target stays.

    Args:
        path: the path of the finished file.

    Yields:
        The path of a new, empty file, `{path}.RANDOM.incomplete`. It is removed if the
        block raises; if this process is killed, by the next one that writes `path`.
    """
    stem = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    _remove_leftovers(path.parent, stem)
    try:
        incomplete, descriptor = _new_file(path.parent, stem)
    except OSError as error:
        error.filename = str(path)  # users do not know the temporary name
        raise
    try:
        yield incomplete
        os.replace(incomplete, path)
    except BaseException:
        incomplete.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _new_file(directory: Path, stem: str) -> tuple[Path, int]:
    """Makes a temporary file; returns its path and an open, locked descriptor.

    The lock tells other processes that the file is not a leftover.
    """
    while True:
        path = directory / f"{stem}.{secrets.token_hex(4)}{_INCOMPLETE}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileExistsError:
            continue
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)  # another process took it for a leftover before the lock


def _remove_leftovers(directory: Path, stem: str) -> None:
    """Removes the temporary files of processes that were killed."""
    pattern = re.compile(rf"{re.escape(stem)}\.[0-9a-f]{{8}}{re.escape(_INCOMPLETE)}")
    names = os.listdir(directory) if directory.is_dir() else []
    for name in filter(pattern.fullmatch, names):
        # Without locks, nothing tells whether another process writes the file.
        with contextlib.suppress(OSError):
            descriptor = os.open(directory / name, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (directory / name).unlink()
            finally:
                os.close(descriptor)


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


# Error codes of file systems without locks, such as Lustre mounted without `flock`.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


# Error codes of a file that is gone; NFS has the last one for an open file.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


# What this program writes to its lock files, see `lock`.
_PURPOSE = re.compile(r"process \d+ on .*", re.DOTALL)


_MAX_PURPOSE = 1 << 20


class OccupiedDirectory(UserError):
    """Another process has the lock of a directory."""


class Lock:
    """A lock on a directory that this process holds; `lock` returns it.

    Args:
        path: the lock file in the directory.
        file: the same file, open and locked.
    """

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path = path
        self._file = file

    def require_place(self) -> None:
        """Raises UserError if the locked file is no longer at its path.

        Somebody may remove the directory and create another with its name. That one has
        another lock file, so this lock keeps nobody out of it.

        Raises:
            UserError: the directory was removed, renamed or replaced.
        """
        if not is_in_place(self._file, self._path):
            raise UserError(
                f"{self._path.parent} was removed, renamed or replaced while this "
                f"process worked there ({self._path.name} is not the file that it has "
                "locked); it writes nothing more there; run the command again, with "
                "another directory if this one is in use"
            )


@contextlib.contextmanager
def lock(
    path: Path, refusal: Callable[[str], UserError] | None, purpose: str = ""
) -> Iterator[Lock]:
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
            yield Lock(path, file)
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


def is_in_place(file: IO[str] | IO[bytes], path: Path) -> bool:
    """Returns whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return False


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
