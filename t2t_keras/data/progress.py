"""The progress of long tasks, on a terminal or in lines of a log."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from t2t_keras.data.console import duration, say, screen, speed
from t2t_keras.quantity import quantity

_SECONDS_BETWEEN_LINES = 10.0
# The type of `progress`: (task, unit, total) -> a function to call with the units done.
Meter = Callable[[str, str, int], AbstractContextManager[Callable[[int], None]]]


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
    import rich.progress

    from t2t_keras.data.progress_bar import ProgressBar

    start = time.monotonic()
    reported = start  # when the last line was printed
    count = 0

    def advance(units: int) -> None:
        nonlocal count, reported
        count += units
        seconds = time.monotonic() - start
        rate = speed(count / max(seconds, 1e-3), unit)
        bar.update(row, completed=done + count, text=rate)
        is_due = time.monotonic() - reported > _SECONDS_BETWEEN_LINES
        if bar.disable and is_due and done + count != total:
            reported = time.monotonic()
            out_of = ""
            eta = ""
            if total and count:
                remaining = (total - done - count) * seconds / count
                out_of = f" of {total:,}"
                eta = f", ETA {duration(remaining)}"
            say(f"{task}: {done + count:,}{out_of} {unit} ({rate}{eta})")

    bar = ProgressBar(
        screen(), rich.progress.TimeRemainingColumn(elapsed_when_finished=True)
    )
    row = bar.add_task(task, total=total, completed=done, text=unit)
    with bar:
        yield advance
    seconds = time.monotonic() - start
    rate = speed(count / max(seconds, 1e-3), unit)
    say(f"{task}: {quantity(done + count, unit)} in {seconds:,.1f} s ({rate})")


@contextlib.contextmanager
def unwatched(
    task: str, unit: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Is a `Meter` that shows nothing."""
    yield lambda units: None
