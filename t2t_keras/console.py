"""Messages, tables and the progress of long tasks, on a terminal or in a log."""

import contextlib
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from t2t_keras.display import end_spinner, is_shown, show, waiting
from t2t_keras.errors import printable, quantity

if TYPE_CHECKING:
    from rich.console import Console


def two_columns(rows: Mapping[str, str]) -> str:
    """Formats names and sentences in two columns, for a terminal."""
    indent = max(map(len, rows), default=0) + 4
    # A group of the help indents it by two.
    width = max(shutil.get_terminal_size().columns - 4, indent + 20)
    return "\n".join(
        f"  {name:<{indent - 2}}"
        + textwrap.fill(text, width - indent).replace("\n", "\n" + " " * indent)
        for name, text in rows.items()
    )


def table(rows: Mapping[str, object]) -> str:
    """Formats names and values in two columns; on a terminal long texts are wrapped."""
    indent = max(map(len, rows), default=0) + 2
    lines = []
    for name, value in rows.items():
        text = _cell(value, short_number)
        lines.append(f"{name:<{indent}}{wrapped(text, indent)}")
    return "\n".join(lines)


def wrapped(text: str, indent: int = 4) -> str:
    """Wraps a text between its words, if standard output is a terminal.

    Args:
        text: the text, in one line.
        indent: the number of spaces before every line but the first.
    """
    if not sys.stdout.isatty():
        return text
    width = max(shutil.get_terminal_size().columns - indent, 20)
    if len(text) <= width:
        return text
    return textwrap.fill(
        text, width, break_long_words=False, break_on_hyphens=False
    ).replace("\n", "\n" + " " * indent)


def columns(rows: Sequence[Mapping[str, object]]) -> str:
    """Formats rows as a table with a header; numbers are aligned to the right.

    On a terminal long texts in the last column are wrapped.
    """
    table_rows = [list(rows[0])]
    for row in rows:
        table_rows.append([_cell(value, _aligned) for value in row.values()])
    padded_columns = []
    for value, cells in zip(
        rows[0].values(), zip(*table_rows, strict=True), strict=True
    ):
        width = max(map(len, cells))
        pad = str.ljust if isinstance(value, str) else str.rjust
        padded_columns.append([pad(cell, width) for cell in cells])
    lines = []
    for cells in zip(*padded_columns, strict=True):
        start = "".join(f"{cell}  " for cell in cells[:-1])
        lines.append((start + wrapped(cells[-1].rstrip(), len(start))).rstrip())
    return "\n".join(lines)


def _cell(value: object, of_float: Callable[[float], str]) -> str:
    """Formats a value of a table: whole numbers with a comma at each thousand."""
    if isinstance(value, float):
        return of_float(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_number else str(value)


def _aligned(value: float) -> str:
    """Formats a number of a column, in which those of one size have equal decimals."""
    if abs(value) >= 1000:
        return short_number(value)
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"


# What changes the words of messages: in Python, flags become arguments.
_rewrites: list[Callable[[str], str]] = []


@contextlib.contextmanager
def rewriting(rewrite: Callable[[str], str]) -> Iterator[None]:
    """Has `say` print what a function makes of each message."""
    _rewrites.append(rewrite)
    try:
        yield
    finally:
        _rewrites.remove(rewrite)


def say(message: str, to: TextIO | None = None) -> None:
    """Prints a message or a table, without the control characters of others' texts.

    Args:
        message: one or more lines.
        to: where it is printed; None: standard error.
    """
    for rewrite in _rewrites:
        message = rewrite(message)
    print(printable(message), file=to or sys.stderr, flush=True)


def screen() -> "Console":
    """Returns standard error for rich, which is a terminal only if it is one.

    FORCE_COLOR would make rich treat a pipe as a terminal. rich respects NO_COLOR.
    """
    from rich.console import Console

    return Console(stderr=True, force_terminal=sys.stderr.isatty())


@contextlib.contextmanager
def busy(words: str) -> Iterator[None]:
    """Shows on a terminal what the block does, in the bar or else in a spinner.

    A spinner ends early where a bar begins, or at `end_spinner`; `say` prints above it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    needs_spinner = is_main and not is_shown() and sys.stderr.isatty()
    with waiting(words):
        try:
            if needs_spinner:
                from t2t_keras.progress_bar import Spinner

                spinner = Spinner()
                show(spinner)
                spinner.start(refresh=True)
            yield
        finally:
            if needs_spinner:
                end_spinner()


def folded(
    parts: Iterable[str],
    separator: str,
    line_end: str = "",
    indent: int = 4,
    file: TextIO | None = None,
) -> str:
    """Joins parts; for a terminal, with line breaks where a line would be too long.

    Args:
        parts: the parts, between which lines may be broken.
        separator: what stands between two parts of a line.
        line_end: what stands at the end of every line but the last.
        indent: the number of spaces before every line but the first.
        file: where the text is printed; None: standard error.
    """
    if not (file or sys.stderr).isatty():
        return separator.join(parts)
    width = shutil.get_terminal_size().columns - len(line_end)
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1] + separator + part) <= width:
            lines[-1] += separator + part
        else:
            lines.append((" " * indent if lines else "") + part)
    return f"{line_end}\n".join(lines)


def say_page(path: str | Path) -> None:
    """Says where a page is, as an address that terminals and browsers open."""
    say(f"page: {Path(path).resolve().as_uri()}")


def say_next(command: str) -> None:
    """Says on a terminal which command usually comes next, in lines that fit.

    Args:
        command: the command; "": nothing is said.
    """
    if command and sys.stderr.isatty():
        flags: list[str] = []
        for word in re.findall(r"(?:[^\s']|'[^']*')+", f"next: {command}"):
            if flags and not word.startswith("-"):
                flags[-1] += f" {word}"
            else:
                flags.append(word)
        say(folded(flags, " ", line_end=" \\"))


def short_number(value: float) -> str:
    """Formats a number with four significant digits, thousands in full."""
    if abs(value) < 1e-12:  # such as sacreBLEU's score of an untrained model
        return "0"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Formats a duration in whole seconds, or with its two largest units."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def speed(units: float, unit: str) -> str:
    """Formats how many units are done in a second, with at least two digits.

    Args:
        units: the number.
        unit: the name of the units, in the plural.
    """
    rate = f"{units:,.0f}" if units >= 10 else f"{units:.2g}"
    return f"{rate} {unit}/s"


_SECONDS_BETWEEN_LINES = 10.0
# The type of `progress`: (task, unit, total) -> a function to call with the units done.
Meter = Callable[[str, str, int], AbstractContextManager[Callable[[int], None]]]


@contextlib.contextmanager
def progress(
    task: str, unit: str, total: int | None = None, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Shows the progress and remaining time of a task, and at its end the time taken.

    A task of less than a second says only how much was done.

    Args:
        task: the name of the task.
        unit: the name of the units that are counted, in the plural.
        total: the number of units, if it is known.
        done: the number of units that an earlier run has done.

    Yields:
        A function to call with the number of units done since the last call.
    """
    import rich.progress

    from t2t_keras.progress_bar import ProgressBar

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
    taken = ""
    if seconds >= 1:
        time_text = f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
        taken = f" in {time_text} ({speed(count / seconds, unit)})"
    say(f"{task}: {quantity(done + count, unit)}{taken}")


@contextlib.contextmanager
def unwatched(
    task: str, unit: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Is a `Meter` that shows nothing."""
    yield lambda units: None
