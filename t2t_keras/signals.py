"""The signals that ask a program to stop, and a terminal that was closed."""

import os
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def handled_signals() -> list[signal.Signals]:
    """Returns SIGNALS, but without SIGHUP if `nohup` has set it to be ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [x for x in SIGNALS if not (x is signal.SIGHUP and is_ignored)]


def leave_closed_terminal() -> None:
    """Discards what is printed to a terminal that is closed, where printing fails."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)
