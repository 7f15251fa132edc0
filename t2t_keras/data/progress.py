"""Progress on standard error: a bar on a terminal, elsewhere a line every 10 s."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

_SECONDS_BETWEEN_LINES = 10.0

# The type of `progress`: (task, unit, total) -> a function to call with the units done.
Meter = Callable[[str, str, int], AbstractContextManager[Callable[[int], None]]]


def say(message: str) -> None:
    """Prints one line to standard error."""
    print(message, file=sys.stderr, flush=True)


def screen() -> Console:
    """Returns standard error for rich, which is a terminal only if it is one.

    For rich, FORCE_COLOR makes a terminal of a pipe. NO_COLOR it respects.
    """
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
    start = last = time.monotonic()
    count = 0

    def rate() -> str:
        seconds = time.monotonic() - start
        if not seconds:
            return "at once"
        digits = 0 if count / seconds >= 10 else 2
        return f"{count / seconds:,.{digits}f} {unit}/s"

    def advance(units: int) -> None:
        nonlocal count, last
        count += units
        bar.update(row, completed=done + count, rate=rate())
        is_due = time.monotonic() - last > _SECONDS_BETWEEN_LINES
        if bar.disable and is_due and done + count != total:
            last = time.monotonic()
            of, eta = "", ""
            if total and count:
                left = (total - done - count) * (last - start) / count
                of, eta = f" of {total:,}", f", ETA {duration(left)}"
            say(f"{task}: {done + count:,}{of} {unit} ({rate()}{eta})")

    console = screen()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit} {{task.fields[rate]}}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_interactive,
    )
    row = bar.add_task(task, total=total, completed=done, rate="")
    with bar:
        yield advance
    seconds = time.monotonic() - start
    say(f"{task}: {done + count:,} {unit} in {seconds:,.1f} s ({rate()})")


@contextlib.contextmanager
def unwatched(
    task: str, unit: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Shows nothing: another `Meter`."""
    yield lambda units: None
