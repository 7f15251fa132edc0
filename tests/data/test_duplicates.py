"""Repeated pairs: all but the first, whatever a task can read at a time."""

import numpy as np
import psutil
import pytest

from t2t_keras.data import duplicates
from t2t_keras.data.duplicates import HASH_ENTRY, repeated

_AT_A_TIME = 2000


@pytest.fixture
def hashes(tmp_path):
    """Files of entries, and the keys of all but the first with a hash."""
    rng = np.random.default_rng(1)
    entries = rng.integers(0, 1 << 63, (60_000, 2), np.uint64)
    entries[:, 1] = rng.permutation(entries[:, 1])
    entries[40_000:45_000, 1] = entries[1000:6000, 1]
    entries[50_000:50_003, 1] = entries[7, 1]
    paths = []
    for index, rows in enumerate(np.split(entries, [10, 10, 30_000])):
        paths.append(tmp_path / f"{index}.hashes")
        paths[-1].write_bytes(rows.astype("<u8").tobytes())
    seen = set()
    repeats = []
    for key, value in entries.tolist():
        if value in seen:
            repeats.append(key)
        seen.add(value)
    return paths, sorted(repeats)


def test_no_task_reads_all_hashes(hashes, monkeypatch):
    paths, expected = hashes
    total = sum(path.stat().st_size for path in paths)
    largest = max(path.stat().st_size for path in paths)
    assert repeated(paths).tolist() == expected
    monkeypatch.setattr(duplicates, "_AT_A_TIME", _AT_A_TIME)
    read = {}

    def run_and_measure(task, arguments):
        for argument in arguments:
            before = psutil.Process().io_counters().read_chars
            yield task(argument)
            count = psutil.Process().io_counters().read_chars - before
            read[task.__name__] = max(count, read.get(task.__name__, 0))

    assert repeated(paths, run_and_measure).tolist() == expected
    slack = 40_000  # what psutil reads, and stretches shorter than a buffer
    assert read["_group"] <= largest + slack
    assert read["_compare"] <= 5 * _AT_A_TIME * HASH_ENTRY.size + slack < total / 3
