"""Worker processes that start clean, end with their parent and tell when they die."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from t2t_keras.errors import UserError


def num_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def worker_pool(
    workers: int, start: Callable[..., None] | None = None, *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """Gives a pool of processes, which begin when there is something to do.

    Args:
        workers: number of processes.
        start: called in each process at its beginning.
        *arguments: for `start`.

    Raises:
        UserError: a process died.
    """
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(start, arguments),
    )
    try:
        yield pool
    except BrokenProcessPool:
        raise UserError(
            "a worker process died, perhaps out of memory; run the same command "
            "with fewer --workers, and it goes on where it stopped (a script of your "
            "own must call datagen under `if __name__ == '__main__':`)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    """Prepares a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if start is not None:
        start(*arguments)


def _die_with_parent() -> None:
    """Ends this process when its parent is gone, even killed: nothing else would."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
