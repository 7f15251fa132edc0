"""A signal or a time limit ends a training before its last step."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from t2t_keras.display import after_printing, show_note
from t2t_keras.processes import LAUNCHED, handled_signals, leave_closed_terminal


class Stopping:
    """A request to end training after the current step.

    As a context manager it takes a signal as the request: SIGTERM, which batch systems
    and containers send before they kill, SIGINT (Ctrl-C), or SIGHUP (a terminal or
    connection was closed). A second signal ends the process at once, unless it is
    SIGHUP, which the shell and the kernel both send. A LAUNCHED process takes all
    signals as one request, because it may get the same signal directly and from its
    launcher, which handles a second one.

    Args:
        max_minutes: after which training ends; 0: never.
    """

    def __init__(self, max_minutes: float = 0.0) -> None:
        seconds = 60 * max_minutes
        self._deadline = time.monotonic() + seconds if seconds else float("inf")
        self._previous_handlers: dict[signal.Signals, Any] = {}
        self._may_interrupt = False
        self.signal: signal.Signals | None = None

    @property
    def reason(self) -> str | None:
        """The signal's name, or "max_minutes"; None: training continues."""
        if self.signal:
            return self.signal.name
        return "max_minutes" if time.monotonic() >= self._deadline else None

    @property
    def seconds_left(self) -> float:
        """Seconds until "max_minutes" is the reason; infinite without a limit."""
        return self._deadline - time.monotonic()

    def __enter__(self) -> Self:
        # Python allows handlers in the main thread only.
        if threading.current_thread() is threading.main_thread():
            for signum in handled_signals():
                handler = signal.signal(signum, self._on_signal)
                self._previous_handlers[signum] = handler
        return self

    def __exit__(self, *error: object) -> None:
        for signum, handler in self._previous_handlers.items():
            signal.signal(signum, handler)
        self._previous_handlers.clear()

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Lets a signal cut short a block that changes nothing, as an evaluation."""
        self._may_interrupt = True
        try:
            yield
        except _Interrupted:
            pass
        finally:
            self._may_interrupt = False

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.signal:
            return
        self.signal = signal.Signals(signum)
        if LAUNCHED not in os.environ:
            for name in (signal.SIGTERM, signal.SIGINT):
                signal.signal(name, self._previous_handlers.pop(name))
        leave_closed_terminal()
        # A line below a bar would leave it on the screen.
        if not show_note(f"{self.signal.name}: saving; once more ends at once"):
            # os.write, because the signal may have interrupted print.
            note = f"{self.signal.name}: saving after this step; once more ends at once"
            with contextlib.suppress(OSError):  # standard error may be closed
                os.write(2, f"{note}\n".encode())
        after_printing(self._interrupt)

    def _interrupt(self) -> None:
        if self._may_interrupt:
            raise _Interrupted


class _Interrupted(BaseException):
    """Leaves an interruptible block; `except Exception` does not catch it."""
