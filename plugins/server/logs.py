"""Warnings of `t2t serve`: of each kind, one line a minute."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

_SECONDS = 60.0


class OnceAMinute(logging.Filter):
    """Passes the first record of each kind, and one a minute after it.

    Clients cause warnings, such as that inputs are truncated, and would fill the disk
    with them. Records are of one kind if they have the same message without arguments.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[object, float] = {}  # when a record of each kind passed
        self._dropped: dict[object, int] = {}  # since then

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether a record passes; it tells how many others did not."""
        kind = record.msg
        now = self._clock()
        dropped = self._dropped.get(kind, 0)
        if now < self._passed.get(kind, -_SECONDS) + _SECONDS:
            self._dropped[kind] = dropped + 1
            return False
        self._passed[kind] = now
        self._dropped[kind] = 0
        if dropped:
            record.msg = f"{record.msg}; {dropped:,} more such lines were left out"
        return True


@contextlib.contextmanager
def few_warnings() -> Iterator[None]:
    """Logs the package's warnings on standard error, one of each kind a minute."""
    logger = logging.getLogger("t2t_keras")
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(OnceAMinute())
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
