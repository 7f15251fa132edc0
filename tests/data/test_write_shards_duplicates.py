"""Repeated pairs: all but the first, whatever a task can read at a time."""

import os
import zlib

import numpy as np
import psutil
import pytest
from helpers.errors import refused

from t2t_keras.data import write_shards
from t2t_keras.data.encoding import HASH_ENTRY
from t2t_keras.data.write_shards import Spill, repeated

_AT_A_TIME = 2000


@pytest.fixture
def hashes(tmp_path):
    """Files of entries, and the keys of all but the first with a hash."""
    rng = np.random.default_rng(1)
    entries = rng.integers(0, 1 << 63, (60_000, 2), np.uint64)
    entries[:, 1] = rng.permutation(entries[:, 1])
    entries[40_000:45_000, 1] = entries[1000:6000, 1]
    entries[50_000:50_003, 1] = entries[7, 1]
    spills = []
    for index, rows in enumerate(np.split(entries, [10, 10, 30_000])):
        path = tmp_path / f"{index}.hashes"
        content = rows.astype("<u8").tobytes()
        path.write_bytes(content)
        spills.append(Spill(path, len(content), zlib.crc32(content)))
    seen = set()
    repeats = []
    for key, value in entries.tolist():
        if value in seen:
            repeats.append(key)
        seen.add(value)
    return spills, sorted(repeats)


def test_no_task_reads_all_hashes(hashes, monkeypatch):
    spills, expected = hashes
    total = sum(spill.size for spill in spills)
    largest = max(spill.size for spill in spills)
    assert repeated(spills).tolist() == expected
    monkeypatch.setattr(write_shards, "_AT_A_TIME", _AT_A_TIME)
    read = {}

    def run_and_measure(task, arguments):
        for argument in arguments:
            read_earlier = psutil.Process().io_counters().read_chars
            yield task(argument)
            read_by_task = psutil.Process().io_counters().read_chars - read_earlier
            read[task.__name__] = max(read_by_task, read.get(task.__name__, 0))

    assert repeated(spills, run_and_measure).tolist() == expected
    slack = 40_000  # what psutil reads, and stretches shorter than a buffer
    assert read["_group"] <= largest + slack
    assert read["_compare"] <= 5 * _AT_A_TIME * HASH_ENTRY.size + slack < total / 3


DAMAGES = {
    "lost": lambda path: path.unlink(),
    "shorter": lambda path: os.truncate(path, path.stat().st_size - HASH_ENTRY.size),
    "of equal size": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_lost_machine_had_grouped(hashes, monkeypatch, damage):
    """A task reads what another one wrote, perhaps on a machine that is lost."""
    monkeypatch.setattr(write_shards, "_AT_A_TIME", _AT_A_TIME)

    def lose(task, arguments):
        yield from map(task, arguments)
        if task is write_shards._group:
            DAMAGES[damage](hashes[0][2].path.with_name("2.hashes-grouped"))

    refused("hashes-grouped is damaged", repeated, hashes[0], lose)


@pytest.mark.parametrize("at_a_time", [_AT_A_TIME, write_shards._AT_A_TIME])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_hashes(hashes, monkeypatch, damage, at_a_time):
    monkeypatch.setattr(write_shards, "_AT_A_TIME", at_a_time)
    DAMAGES[damage](hashes[0][2].path)
    refused("2.hashes is damaged", repeated, hashes[0])
