"""Finds pairs that occur more than once."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HASH_ENTRY = struct.Struct("<QQ")  # key of an example, hash of its texts
_AT_A_TIME = 1 << 22  # examples whose hashes are compared at a time: 64 MB


def repeated(paths: Sequence[Path]) -> np.ndarray:
    """Returns the keys of all examples but the first with the same hash, in order.

    It uses bounded memory, since it compares only a part of the hashes at a time.

    Args:
        paths: files with the key and the hash of each example, in their order.

    Returns:
        uint64, ascending.
    """
    total = sum(path.stat().st_size for path in paths) // HASH_ENTRY.size
    parts = -(-total // _AT_A_TIME)
    repeats = [np.empty(0, np.uint64)]
    for part in range(parts):
        selected = []
        for path in paths:
            with path.open("rb") as file:
                while content := file.read(_AT_A_TIME * HASH_ENTRY.size // 8):
                    block = np.frombuffer(content, "<u8").reshape(-1, 2)
                    selected.append(block[block[:, 1] % parts == part])
        entries = np.concatenate(selected)
        order = np.argsort(entries[:, 1], kind="stable")
        keys, hashes = entries[order].T
        repeats.append(keys[1:][hashes[1:] == hashes[:-1]])
    return np.sort(np.concatenate(repeats))
