"""Finds pairs that occur more than once."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.tasks import TaskRunner, run_here

HASH_ENTRY = struct.Struct("<QQ")  # key of an example, hash of its texts
_AT_A_TIME = 1 << 22  # examples whose hashes are compared at a time: 64 MB


def repeated(paths: Sequence[Path], runner: TaskRunner = run_here) -> np.ndarray:
    """Returns the keys of all examples but the first with the same hash, in order.

    It uses bounded memory, since it compares only a part of the hashes at a time.

    Args:
        paths: files with the key and the hash of each example, in their order.
        runner: runs a task for each part of the hashes.

    Returns:
        uint64, ascending.
    """
    total = sum(path.stat().st_size for path in paths) // HASH_ENTRY.size
    parts = -(-total // _AT_A_TIME)
    tasks = [(paths, part, parts) for part in range(parts)]
    return np.sort(np.concatenate([np.empty(0, np.uint64), *runner(_compare, tasks)]))


def _compare(task: tuple[Sequence[Path], int, int]) -> np.ndarray:
    """Compares one of several parts of the hashes; returns the keys of the repeats."""
    paths, part, parts = task
    selected = []
    for path in paths:
        with path.open("rb") as file:
            while content := file.read(_AT_A_TIME * HASH_ENTRY.size // 8):
                block = np.frombuffer(content, "<u8").reshape(-1, 2)
                selected.append(block[block[:, 1] % parts == part])
    entries = np.concatenate(selected)
    order = np.argsort(entries[:, 1], kind="stable")
    keys, hashes = entries[order].T
    return keys[1:][hashes[1:] == hashes[:-1]]
