"""Files that are written atomically, locks on directories, and progress messages.

A directory may come from a stranger. So a temporary file has a random name and is new,
and nothing is written through a symbolic link inside a directory.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

from t2t_keras.errors import UserError
from t2t_keras.pointer_files import require_fetched_file

if TYPE_CHECKING:
    from rich.console import Console

_OPEN_FILE = re.compile(r"/proc/\d+/(task/\d+/)?fd/\d+")
# Error codes of file systems without locks, such as Lustre mounted without `flock`.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_INCOMPLETE = ".incomplete"  # suffix of a file's name while it is written
_NAME_BYTES = 220  # of a file's name that its temporary name has: 255 are allowed
CHECKSUM = "sha256"  # the field of a JSON file that has the digest of the others
# What this program writes to its lock files, see `lock`.
_PURPOSE = re.compile(r"(process \d+ on |\d+ parts, \{).*", re.DOTALL)
_LONGEST_PURPOSE = 1 << 20

_SECONDS_BETWEEN_LINES = 10.0

# The type of `progress`: (task, unit, total) -> a function to call with the units done.
Meter = Callable[[str, str, int], AbstractContextManager[Callable[[int], None]]]


# Files.


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path, which is renamed to `path` when the block ends.

    A link at `path` is replaced, and not what it leads to.

    Args:
        path: the path of the finished file.

    Yields:
        The path of a new, empty file, `{path}.RANDOM.incomplete`. It is removed if the
        block raises; if the process is killed, the next one that writes `path` does it.
    """
    stem = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    _remove_leftovers(path.parent, stem)
    try:
        incomplete, descriptor = _new_file(path.parent, stem)
    except OSError as error:
        error.filename = str(path)  # the user knows no temporary names
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
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
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
        with contextlib.suppress(OSError, UserError):
            descriptor = open_regular(directory / name, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (directory / name).unlink()
            finally:
                os.close(descriptor)


def open_regular(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Opens a regular file of a directory, and nothing that a link there leads to.

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
    """Refuses symbolic links in a directory that only this program fills.

    Raises:
        UserError: there is one, or the directory is one.
    """
    for path in (directory, *directory.rglob("*")):
        if path.is_symlink():
            raise UserError(
                f"{path} is a symbolic link, and this program writes none there; "
                "remove it"
            )


def is_special(path: str | Path) -> bool:
    """Returns whether a path is a pipe, a device, or an open file, as `/dev/stdout`."""
    step = Path(path)
    for _ in range(40):  # the system follows no more links
        if not step.is_symlink():
            break
        if _OPEN_FILE.fullmatch(f"{step.parent.resolve()}/{step.name}"):
            return True
        step = step.parent / step.readlink()
    return Path(path).exists() and not Path(path).is_file()


@contextlib.contextmanager
def open_lines(path: str | Path) -> Iterator[TextIO]:
    r"""Opens a file for writing lines, in UTF-8 and with `\n` only, atomically.

    What a link leads to is replaced, and not the link.
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


def open_records(path: Path) -> TextIO:
    """Opens a file of lines to add some.

    A process that was killed, or a full disk, may have left a part of a line: it gets
    its end.

    Raises:
        UserError: see `open_regular`.
    """
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    size = os.fstat(descriptor).st_size
    is_whole = not size or os.pread(descriptor, 1, size - 1) == b"\n"
    file = os.fdopen(descriptor, "a", encoding="utf-8")
    if not is_whole:
        file.write("\n")
    return file


def write_json(path: Path, value: Any, with_checksum: bool = False) -> None:
    """Writes a value as JSON, atomically.

    Args:
        path: the file.
        value: the value.
        with_checksum: whether to add the `digest` of the value, an object, as a field,
            which `read_json` compares.
    """
    if with_checksum:
        value = json.loads(json.dumps(value))  # as it is read later
        value.pop(CHECKSUM, None)
        value = value | {CHECKSUM: digest(value)}
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, as in a path that is not UTF-8
        content = f"{json.dumps(value, indent=2)}\n".encode()
    with atomic(path) as incomplete:
        incomplete.write_bytes(content)


def digest(fields: Mapping[str, Any]) -> str:
    """Returns a SHA-256 of fields, whatever their order."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def read_json(
    path: Path, otherwise: str = "remove it and run the same command again"
) -> dict[str, Any] | None:
    """Reads an object that `write_json` wrote; returns None if there is no such file.

    A file of an earlier version has no checksum.

    Args:
        path: the file.
        otherwise: what the user is to do if it is damaged and there is no copy.

    Raises:
        UserError: the file is damaged, or it has been changed.
    """
    if not path.exists():
        return None
    restore = f"restore it from a copy, or {otherwise}"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {restore}") from None
    except (ValueError, RecursionError):
        require_fetched_file(path)
        raise UserError(f"{path} is damaged: it is not valid JSON; {restore}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path} is damaged: it is not a JSON object; {restore}")
    if CHECKSUM in fields and fields.pop(CHECKSUM) != digest(fields):
        raise UserError(
            f"{path} has been damaged or edited: its content does not have the "
            f"checksum in its field '{CHECKSUM}'; {restore} (remove that field if you "
            "have edited the file yourself)"
        )
    return fields


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, as `sha256sum` prints it.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


# Locks.


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
            the file has something else.

    Raises:
        UserError: another process has the lock (the error that `refusal` returns), or
            the lock file is a link.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(open_regular(path), "r+", encoding="utf-8", errors="replace") as file:
        try:
            lock_file(file, waits=refusal is None, path=path)
        except BlockingIOError:
            assert refusal is not None  # or it had waited
            raise refusal(_purpose(file)) from None
        is_ours = not file.read(1) or _purpose(file) != ""
        if is_ours:
            _replace_content(file, purpose)
        try:
            yield
        finally:
            if is_ours:
                _replace_content(file, "")  # it is valid only while the lock is held


def _replace_content(file: TextIO, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def lock_file(file: IO[Any], waits: bool, path: Path) -> None:
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
    """Returns the purpose of the process that holds a lock; None if none holds it.

    Raises:
        UserError: see `open_regular`.
    """
    try:
        descriptor = open_regular(path, os.O_RDWR)
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
    content = file.read(_LONGEST_PURPOSE)
    return content if _PURPOSE.fullmatch(content) else ""


# Progress.


def say(message: str) -> None:
    """Prints one line to standard error."""
    print(message, file=sys.stderr, flush=True)


def screen() -> "Console":
    """Returns standard error for rich, which is a terminal only if it is one.

    FORCE_COLOR would make rich treat a pipe as a terminal. rich respects NO_COLOR.
    """
    from rich.console import Console

    return Console(stderr=True, force_terminal=sys.stderr.isatty())


def duration(seconds: float) -> str:
    """Formats a duration with its two largest units."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


@contextlib.contextmanager
def progress(
    task: str, unit: str, total: int | None = None, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Shows the progress and remaining time of a task, and at its end the time taken.

    Args:
        task: the name of the task.
        unit: the name of the units that are counted, in the plural.
        total: the number of units, if it is known.
        done: the number of units that an earlier run has done.

    Yields:
        A function to call with the number of units done since the last call.
    """
    import rich.progress as rich

    start = last = time.monotonic()
    count = 0

    def advance(units: int) -> None:
        nonlocal count, last
        count += units
        seconds = time.monotonic() - start
        rate = f"{count / max(seconds, 1e-3):,.1f} {unit}/s"
        bar.update(row, completed=done + count, rate=rate)
        is_due = time.monotonic() - last > _SECONDS_BETWEEN_LINES
        if bar.disable and is_due and done + count != total:
            last = time.monotonic()
            of, eta = "", ""
            if total and count:
                left = (total - done - count) * seconds / count
                of, eta = f" of {total:,}", f", ETA {duration(left)}"
            say(f"{task}: {done + count:,}{of} {unit} ({rate}{eta})")

    console = screen()
    bar = rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn(f"{unit} {{task.fields[rate]}}"),
        rich.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_interactive,
    )
    row = bar.add_task(task, total=total, completed=done, rate="")
    with bar:
        yield advance
    seconds = time.monotonic() - start
    units = unit.removesuffix("s") if done + count == 1 else unit
    rate = f"{count / max(seconds, 1e-3):,.1f} {unit}/s"
    say(f"{task}: {done + count:,} {units} in {seconds:,.1f} s ({rate})")


@contextlib.contextmanager
def unwatched(
    task: str, unit: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Shows nothing: another `Meter`."""
    yield lambda units: None
