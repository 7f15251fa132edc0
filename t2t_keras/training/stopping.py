"""A signal or a time limit ends a training before its last step."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from t2t_keras.signals import handled_signals, leave_closed_terminal

# The environment variable of processes that `t2t launch` started. The launcher passes
# signals on and reports failures, so a process that loses contact with another one ends
# silently, with the status LOST.
LAUNCHED = "T2T_LAUNCHED"
LOST = os.EX_UNAVAILABLE


class Stopping:
    """A request to end training after the current step.

    As a context manager it takes SIGTERM (what batch systems and containers send before
    they kill), SIGINT (Ctrl-C) and SIGHUP (a terminal or connection was closed) as such
    a request. A second signal ends the process at once, as it does everywhere, unless
    it is SIGHUP, which the shell and the kernel both send. A process that was LAUNCHED
    takes all signals as one request, because it may get the same one directly and from
    its launcher, and leaves the second one to the launcher.

    Args:
        max_minutes: after which training is to end; 0: never.
    """

    def __init__(self, max_minutes: float = 0.0) -> None:
        seconds = 60 * max_minutes
        self._deadline = time.monotonic() + seconds if seconds else float("inf")
        self._previous: dict[signal.Signals, Any] = {}
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
        """Seconds until "max_minutes" is the reason; infinite without."""
        return self._deadline - time.monotonic()

    def __enter__(self) -> Self:
        # In other threads Python allows no handlers, and signals do what they did.
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore_handlers()

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Lets a signal cut short what changes nothing, such as an evaluation."""
        self._may_interrupt = True
        try:
            yield
        except _Interrupted:
            pass
        finally:
            self._may_interrupt = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            return
        self.signal = signal.Signals(number)
        if LAUNCHED not in os.environ:
            for other in (signal.SIGTERM, signal.SIGINT):
                signal.signal(other, self._previous.pop(other))
        leave_closed_terminal()
        # Not by print, which may be what the signal has come into.
        note = f"{self.signal.name}: saving after this step; once more ends at once\n"
        with contextlib.suppress(OSError):  # nobody reads it
            os.write(2, note.encode())
        if self._may_interrupt:
            raise _Interrupted

    def _restore_handlers(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()


class _Interrupted(BaseException):
    """Leaves an interruptible block; not an Exception, lest someone catches it."""
