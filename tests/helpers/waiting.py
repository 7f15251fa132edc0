"""Waits for what another thread or process does."""

import subprocess
import time
from collections.abc import Callable

_SECONDS = 240


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen | None = None
) -> None:
    """Waits for a condition: while a process runs, or for at most four minutes."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        if process is None:
            assert time.monotonic() < deadline
        else:
            assert process.poll() is None, process.communicate()
        time.sleep(0.01)
