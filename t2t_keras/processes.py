"""Signals that ask a program to stop, and child processes that end with their parent.

`worker_pool` is a pool of processes for short tasks.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from types import FrameType, ModuleType
from typing import Any

from t2t_keras.errors import UserError

# This environment variable is set in processes that `t2t launch` started. The launcher
# passes signals on and reports failures, so a process that loses contact with another
# one ends silently, with the status LOST.
LAUNCHED = "T2T_LAUNCHED"
LOST = os.EX_UNAVAILABLE


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


# A terminal sends these signals to all its processes, but a worker ends with its
# parent.
_TERMINAL_SIGNALS = signal.SIGINT, signal.SIGHUP


class _Worker(SpawnProcess):
    """A process that does not import the user's script, which would run it again.

    The terminal's signals are blocked in it from its first instruction on.
    """

    def start(self) -> None:
        """Starts it; `multiprocessing` looks up the script in the main module."""
        main = sys.modules["__main__"]
        # Starting the tracker unblocks signals, so it comes before they are blocked.
        resource_tracker.ensure_running()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINAL_SIGNALS)
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class _WorkerContext(SpawnContext):
    Process = _Worker


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yields a pool of processes that end with this one, even if it is killed.

    Args:
        workers: number of processes; they start when the first call is submitted.
            They cannot be sent what is defined in the main module.

    Raises:
        UserError: a process died.
    """
    pool = ProcessPoolExecutor(
        workers, mp_context=_WorkerContext(), initializer=_start_worker
    )
    try:
        yield pool
    except BrokenProcessPool:
        raise UserError(
            "a worker process died, perhaps out of memory; run the same command "
            "with fewer --workers, and it continues where it stopped"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Makes this worker process end with its parent."""
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Ends this process when its parent ends, for whatever reason."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


# Python's flag -P keeps it from importing modules of the working directory, as `t2t`
# does.
T2T = ("-P", "-c", "import sys; from t2t_keras.cli import main; sys.exit(main())")
