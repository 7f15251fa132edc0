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
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

_SECONDS_BETWEEN_LINES = 10.0

# The type of `progress`: (task, unit, total) -> a function to call with the units done.
Meter = Callable[[str, str, int], AbstractContextManager[Callable[[int], None]]]


def say(message: str) -> None:
    """Prints one line to standard error."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(
    task: str, unit: str, total: int | None = None, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Shows the progress of a task, and at its end the time that it took.

    Args:
        task: the name of the task.
        unit: the name of the units that are counted, in the plural.
        total: the number of units, if it is known.
        done: the number of units that an earlier run has done.

    Yields:
        A function to call with the number of units done since the last call.
    """
    start, count = time.monotonic(), 0

    def rate() -> str:
        seconds = time.monotonic() - start
        return _rate(count / seconds, unit) if seconds else "at once"

    console = Console(stderr=True)
    show: Callable[[], None]
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            bar = stack.enter_context(_bar(unit, console))
            row = bar.add_task(task, total=total, completed=done)
            show = lambda: bar.update(row, completed=done + count)  # noqa: E731
        else:
            show = _lines(task, unit, total, lambda: (done + count, rate()))

        def advance(units: int) -> None:
            nonlocal count
            count += units
            show()

        yield advance
    seconds = time.monotonic() - start
    say(f"{task}: {done + count:,} {unit} in {seconds:,.1f} s ({rate()})")


def _rate(per_second: float, unit: str) -> str:
    """Returns the number of units in a second as text."""
    digits = 0 if per_second >= 10 else 2
    return f"{per_second:,.{digits}f} {unit}/s"


class _RateColumn(ProgressColumn):
    """The current number of units in a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(_rate(task.speed, self._unit) if task.speed else "")


def _bar(unit: str, console: Console) -> Progress:
    """Returns a bar, which disappears when its task is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        _RateColumn(unit),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def _lines(
    task: str, unit: str, total: int | None, state: Callable[[], tuple[int, str]]
) -> Callable[[], None]:
    """Returns a function that prints the state, but at most every 10 seconds."""
    last = time.monotonic()

    def show() -> None:
        nonlocal last
        count, rate = state()
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES and count != total:
            last = time.monotonic()
            of = f" of {total:,}" if total else ""
            say(f"{task}: {count:,}{of} {unit} ({rate})")

    return show


@contextlib.contextmanager
def unwatched(
    task: str, unit: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Shows nothing: another `Meter`."""
    yield lambda units: None
