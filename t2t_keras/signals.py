"""The signals that ask a program to stop, a closed terminal, and the parent's end."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# The operation of Linux's prctl that sends a signal when the parent process ends.
_PR_SET_PDEATHSIG = 1


def handled_signals() -> list[signal.Signals]:
    """Returns SIGNALS, but without SIGHUP if `nohup` has set it to be ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [x for x in SIGNALS if not (x is signal.SIGHUP and is_ignored)]


@contextlib.contextmanager
def handling(
    handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]],
) -> Iterator[None]:
    """Sets handlers of signals during the `with` block."""
    previous: dict[signal.Signals, Any] = {}
    for signum, handler in handlers.items():
        previous[signum] = signal.signal(signum, handler)
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def leave_closed_terminal() -> None:
    """Discards what is printed to a terminal that is closed, where printing fails."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)


def end_with_parent(parent: int) -> None:
    """Makes this process, which has just been started, end with its parent on Linux.

    Args:
        parent: the process number of the parent.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # which has already ended
            os._exit(os.EX_UNAVAILABLE)
