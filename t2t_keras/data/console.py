"""Messages on standard error, and what it shows while a user waits."""

import contextlib
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console


class Display(Protocol):
    """A spinner or a progress bar on the terminal, which draws `current_words`.

    Attributes:
        is_spinner: whether it has nothing but the words.
    """

    is_spinner: bool

    def stop(self) -> None:
        """Removes it from the terminal."""


# The display that is on the terminal now; there is at most one.
_displays: list[Display] = []
# What the user waits for; threads may wait for several things at once.
_waits: list[str] = []
# What a signal has changed.
_notes: list[str] = []
# What handlers of signals delay until the main thread has printed its line; None:
# it prints nothing now.
_delayed: list[Callable[[], None]] | None = None


def say(message: str) -> None:
    """Prints one line to standard error."""
    print(message, file=sys.stderr, flush=True)


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
    needs_spinner = is_main and not _displays and sys.stderr.isatty()
    _waits.append(words)
    try:
        if needs_spinner:
            from t2t_keras.data.spinner import Spinner

            spinner = Spinner(current_words)
            _displays.append(spinner)
            spinner.start(refresh=True)
        yield
    finally:
        if needs_spinner:
            end_spinner()
        with contextlib.suppress(ValueError):  # a bar has forgotten it
            _waits.remove(words)


def current_words() -> str:
    """Returns what the spinner or bar says now; "": nothing."""
    words = _notes or _waits
    return words[-1] if words else ""


def end_spinner() -> None:
    """Removes the spinner, if there is one."""
    if _displays and _displays[-1].is_spinner:
        _displays.pop().stop()
        _waits.clear()


def show_note(words: str) -> bool:
    """Adds words to the spinner or bar until it ends; a signal handler may call it.

    Returns:
        Whether there is one.
    """
    if _displays:
        _notes.append(words)
    return bool(_displays)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Keeps signal handlers from leaving the block while it prints.

    After such an exit, rich would print its buffer a second time.
    """
    global _delayed
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or _delayed is not None:
        yield
        return
    actions: list[Callable[[], None]] = []
    _delayed = actions
    try:
        yield
    finally:
        _delayed = None
    for action in actions:
        action()


def after_printing(action: Callable[[], None]) -> None:
    """Calls a function that may raise; during `printing`, after the block.

    A signal handler may call it.
    """
    if _delayed is None:
        action()
    else:
        _delayed.append(action)


def show_bar(bar: Display) -> None:
    """Shows the words in a bar from now on."""
    end_spinner()
    _displays.append(bar)


def hide_bar(bar: Display) -> None:
    """Stops showing the words in a bar."""
    _notes.clear()
    with contextlib.suppress(ValueError):  # it had ended, or had not begun
        _displays.remove(bar)


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


def speed(units: float, unit: str, decimals: int = 1) -> str:
    """Formats how many units are done in a second.

    Args:
        units: the number.
        unit: the name of the units, in the plural.
        decimals: of numbers from 1; smaller ones have two significant digits.
    """
    rate = f"{units:,.{decimals}f}" if units >= 1 else f"{units:.2g}"
    return f"{rate} {unit}/s"
