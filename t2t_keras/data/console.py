"""Messages on standard error."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

# The spinner that is on the screen.
_spinners: "list[Live]" = []


def say(message: str) -> None:
    """Prints one line to standard error."""
    print(message, file=sys.stderr, flush=True)


def screen() -> "Console":
    """Returns standard error for rich, which is a terminal only if it is one.

    FORCE_COLOR would make rich treat a pipe as a terminal. rich respects NO_COLOR. A
    spinner ends here, because what is shown next may be a bar.
    """
    from rich.console import Console

    end_spinner()
    return Console(stderr=True, force_terminal=sys.stderr.isatty())


@contextlib.contextmanager
def busy(words: str) -> Iterator[None]:
    """Shows a spinner with words on a terminal while the block runs.

    Messages appear above it. It ends early at `end_spinner`, as when a bar begins.
    """
    if _spinners or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    # A duplicate, because the block may divert the descriptor of standard error.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as terminal:
        console = Console(file=terminal, force_terminal=True)
        spinner = Live(Spinner("dots", words), console=console, transient=True)
        _spinners.append(spinner)
        spinner.start(refresh=True)
        try:
            yield
        finally:
            end_spinner()


def end_spinner() -> None:
    """Removes the spinner of `busy`, if there is one."""
    while _spinners:
        _spinners.pop().stop()


def terminal_width() -> int:
    """Returns the number of columns of the terminal; of other outputs it is large."""
    if not sys.stderr.isatty():
        return 10_000
    return shutil.get_terminal_size().columns


def folded(parts: Iterable[str], separator: str, width: int, indent: int = 4) -> str:
    """Joins parts, with a line break at the separators where a line would be too long.

    Args:
        parts: the parts.
        separator: what stands between two parts of a line.
        width: the number of columns.
        indent: the number of spaces before every line but the first.
    """
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(separator) + len(part) <= width:
            lines[-1] += separator + part
        else:
            lines.append((" " * indent if lines else "") + part)
    return "\n".join(lines)


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
