"""A stopwatch."""

import time
from collections.abc import Callable
from typing import Any


def seconds_of(run: Callable[[], Any]) -> float:
    """Returns the seconds that it takes to call `run`."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
