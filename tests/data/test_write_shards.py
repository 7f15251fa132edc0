"""Spill files: more than a process may open at first, and damaged ones."""

import os
import resource
import zlib

import numpy as np
import pytest
from helpers.errors import refused

from t2t_keras.data.encoding import HASH_ENTRY, SpillFiles
from t2t_keras.data.write_shards import Spill, repeated


@pytest.fixture
def low_limit():
    """Few open files are allowed at first, and as many as before on request."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_more_files_than_a_process_may_open_at_first(tmp_path, low_limit):
    paths = [tmp_path / str(i) for i in range(400)]
    with SpillFiles(paths) as files:
        files.append({399: b"last", 0: b"first"})
        assert files.flush() == [5, *[0] * 398, 4]


DAMAGES = {
    "lost": lambda path: path.unlink(),
    "shorter": lambda path: os.truncate(path, path.stat().st_size - HASH_ENTRY.size),
    "of equal size": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


def hashes(path, *rows):
    """A file with the key and the hash of each pair."""
    content = np.array(rows, "<u8").tobytes()
    path.write_bytes(content)
    return Spill(path, len(content), zlib.crc32(content))


@pytest.mark.parametrize("damage", DAMAGES)
def test_repeated_pairs_are_found_unless_a_file_is_damaged(tmp_path, damage):
    odd = hashes(tmp_path / "2.hashes-1", (5, 71), (6, 73), (9, 71))
    even = hashes(tmp_path / "2.hashes-0", (1, 70), (7, 70))
    assert repeated([[odd], [even]]).tolist() == [7, 9]
    DAMAGES[damage](odd.path)
    refused("2.hashes-1 is damaged", repeated, [[odd], [even]])
