"""Repeated pairs: all but the first, whatever a task can read at a time."""

import os
import zlib

import numpy as np
import pytest
from helpers.errors import refused

from t2t_keras.data.encoding import HASH_ENTRY
from t2t_keras.data.write_shards import Spill, repeated


@pytest.fixture
def hashes(tmp_path):
    """The files of each number, and the keys of all but the first with a hash."""
    rng = np.random.default_rng(1)
    entries = rng.integers(0, 1 << 63, (60_000, 2), np.uint64)
    entries[:, 1] = rng.permutation(entries[:, 1])
    entries[40_000:45_000, 1] = entries[1000:6000, 1]
    entries[50_000:50_003, 1] = entries[7, 1]
    spills = []
    for number in range(3):
        of_number = []
        for index, rows in enumerate(np.split(entries, [10, 10, 30_000])):
            path = tmp_path / f"{index}.hashes-{number}"
            content = rows[rows[:, 1] % 3 == number].astype("<u8").tobytes()
            path.write_bytes(content)
            of_number.append(Spill(path, len(content), zlib.crc32(content)))
        spills.append(of_number)
    seen = set()
    repeats = []
    for key, value in entries.tolist():
        if value in seen:
            repeats.append(key)
        seen.add(value)
    return spills, sorted(repeats)


def test_all_but_the_first(hashes):
    spills, expected = hashes
    assert repeated(spills).tolist() == expected


DAMAGES = {
    "lost": lambda path: path.unlink(),
    "shorter": lambda path: os.truncate(path, path.stat().st_size - HASH_ENTRY.size),
    "of equal size": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_hashes(hashes, damage):
    DAMAGES[damage](hashes[0][1][2].path)
    refused("2.hashes-1 is damaged", repeated, hashes[0])
