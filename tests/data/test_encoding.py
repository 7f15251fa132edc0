"""Spill files: more than a process may open at first."""

import resource

import pytest

from t2t_keras.data.encoding import SpillFiles


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
