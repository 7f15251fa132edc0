"""A pool of worker processes that end with their parent."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from t2t_keras.errors import UserError


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yields a pool of processes that end with this one, even if it is killed.

    Args:
        workers: number of processes; they start when the first call is submitted.

    Raises:
        UserError: a process died.
    """
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
    )
    try:
        yield pool
    except BrokenProcessPool:
        raise UserError(
            "a worker process died, perhaps out of memory; run the same command "
            "with fewer --workers, and it continues where it stopped (a script must "
            "call datagen under `if __name__ == '__main__':`)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Prepares a worker process."""
    # A terminal sends these signals to all its processes, but a worker ends with its
    # parent.
    for signal_number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Ends this process when its parent ends, for whatever reason."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
