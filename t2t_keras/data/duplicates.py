"""Pairs that occur more than once, found in bounded memory.

While pairs are encoded, the key of each example (see `shuffle`) and a hash of its texts
are appended to a file. Of the examples with the same hash the first stays. The hashes
have 64 bits: among 40 million pairs, one is wrongly taken for another with probability
5e-5.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from t2t_keras.problem import Pair

_ENTRY = struct.Struct("<QQ")
_AT_A_TIME = 1 << 22  # examples whose hashes are compared at a time: 64 MB


def entry(key: int, pair: Pair, copy: int) -> bytes:
    """Returns what the file holds of a copy; spaces make no difference."""
    text = "\n".join([*(" ".join(side.split()) for side in pair), str(copy)])
    content = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return _ENTRY.pack(key, int.from_bytes(digest, "little"))


def repeated(paths: Sequence[Path]) -> np.ndarray:
    """Returns the keys of all examples that were there before, uint64, ascending.

    Args:
        paths: the files, in the order of the examples.
    """
    total = sum(path.stat().st_size for path in paths) // _ENTRY.size
    parts = -(-total // _AT_A_TIME)
    found = [np.empty(0, np.uint64)]
    for part in range(parts):
        entries = np.concatenate(
            [block[block[:, 1] % parts == part] for block in _blocks(paths)]
        )
        order = np.argsort(entries[:, 1], kind="stable")
        keys, hashes = entries[order].T
        found.append(keys[1:][hashes[1:] == hashes[:-1]])
    return np.sort(np.concatenate(found))


def _blocks(paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """Yields the entries, uint64 [N, 2] of key and hash, some at a time."""
    for path in paths:
        with path.open("rb") as file:
            while content := file.read(_AT_A_TIME * _ENTRY.size // 8):
                yield np.frombuffer(content, "<u8").reshape(-1, 2)
