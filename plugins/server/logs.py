"""Warnings of `t2t serve`: each message at most once a minute."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from t2t_keras.errors import quantity

_SECONDS = 60.0


class OnceAMinute(logging.Filter):
    """Passes each message once, and then at most once a minute.

    Clients cause warnings, for example of truncated inputs, and could fill the disk
    with them. Messages are compared without their arguments.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # For each message, the time when it passed, and how often it has been
        # dropped since then.
        self._passed: dict[object, float] = {}
        self._dropped: dict[object, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether a record passes; it tells how many have been dropped."""
        message = record.msg
        seconds = self._clock()
        dropped = self._dropped.get(message, 0)
        if seconds < self._passed.get(message, -_SECONDS) + _SECONDS:
            self._dropped[message] = dropped + 1
            return False
        self._passed[message] = seconds
        self._dropped[message] = 0
        if dropped:
            dropped_lines = quantity(dropped, "more such lines")
            record.msg = f"{record.msg}; {dropped_lines} left out"
        return True


@contextlib.contextmanager
def few_warnings() -> Iterator[None]:
    """Logs the package's warnings on standard error, each at most once a minute."""
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
