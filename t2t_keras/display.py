"""The display on the terminal while a user waits: who shows it, and the words in it.

It is drawn by `progress_bar`. Here is what signal handlers and threads may do with it.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Protocol


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


def is_shown() -> bool:
    """Returns whether a spinner or bar is on the terminal."""
    return bool(_displays)


def show(display: Display) -> None:
    """Shows the words in a spinner or bar from now on."""
    end_spinner()
    _displays.append(display)


def hide(display: Display) -> None:
    """Stops showing the words in a spinner or bar."""
    _notes.clear()
    with contextlib.suppress(ValueError):  # it had ended, or had not begun
        _displays.remove(display)


@contextlib.contextmanager
def waiting(words: str) -> Iterator[None]:
    """Has the spinner or bar say what the user waits for in the block."""
    _waits.append(words)
    try:
        yield
    finally:
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
    return is_shown()


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
