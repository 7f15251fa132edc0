"""The number of cores."""

import os

# Python 3.13 reads it for `os.cpu_count`.
PYTHON_CPU_COUNT = "PYTHON_CPU_COUNT"


def num_cores() -> int:
    """Returns the number of cores that this process may use.

    The environment variable PYTHON_CPU_COUNT changes it.
    """
    count = os.environ.get(PYTHON_CPU_COUNT, "")
    if count.isdigit() and int(count):
        return int(count)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
