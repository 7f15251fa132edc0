"""Files that are written atomically, locks on directories, and progress messages."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

from t2t_keras.option import UserError, require_fetched_file

if TYPE_CHECKING:
    from rich.console import Console

_OPEN_FILE = re.compile(r"/proc/\d+/(task/\d+/)?fd/\d+")
# Error codes of file systems without locks, such as Lustre mounted without `flock`.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_SECONDS_BETWEEN_LINES = 10.0

# The type of `progress`: (task, unit, total) -> a function to call with the units done.
Meter = Callable[[str, str, int], AbstractContextManager[Callable[[int], None]]]


# Files.


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path, which is renamed to `path` when the block ends.

    Args:
        path: the path of the finished file.

    Yields:
        `{path}.incomplete`; the file is removed if the block raises.
    """
    incomplete = path.with_name(f"{path.name}.incomplete")
    try:
        yield incomplete
        os.replace(incomplete, path)
    except BaseException:
        incomplete.unlink(missing_ok=True)
        raise


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
    """
    is_whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    file = path.open("a", encoding="utf-8")
    if not is_whole:
        file.write("\n")
    return file


def write_json(path: Path, value: object) -> None:
    """Writes a value as JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with atomic(path) as incomplete:
        incomplete.write_text(text, encoding="utf-8")


def read_json(
    path: Path, otherwise: str = "remove it and run the same command again"
) -> Any:
    """Reads what `write_json` wrote; returns None if there is no such file.

    Args:
        path: the file.
        otherwise: what the user is to do if it is damaged and there is no copy.

    Raises:
        UserError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        require_fetched_file(path)
        raise UserError(
            f"{path} is damaged: it is not valid JSON; restore it from a copy, or "
            f"{otherwise}"
        ) from None


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
        if error.errno not in NO_LOCKS:
            raise
        print(
            f"{Path(file.name).parent}: this file system has no locks "
            f"({error.strerror}); make sure that no other process writes there",
            file=sys.stderr,
        )


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
