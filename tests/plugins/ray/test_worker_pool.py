"""Who is blamed for an error: the lines, or the worker that has them."""

from collections import deque

import pytest

from t2t_keras.plugins.ray.windows import Batch, Line, Window

ray = pytest.importorskip("ray", reason="needs the extra [ray]")
worker_pool = pytest.importorskip("t2t_keras.plugins.ray.worker_pool")


@pytest.fixture
def pool():
    """A pool of one worker that has sent no answer for a batch, without a cluster."""
    pool = object.__new__(worker_pool.WorkerPool)
    worker = worker_pool._Worker(actor=None)
    batch = Batch(Window([Line(0, 1, ("a",))]), [0])
    worker.batches["reference"] = batch
    pool._workers = [worker]
    pool._repeated = deque()
    return pool


def finish(pool, monkeypatch, error):
    def get(reference):
        raise error

    monkeypatch.setattr(ray, "get", get)
    return [outcome for _, outcome in pool._finish("reference")]


@pytest.mark.parametrize(
    "lost",
    [ray.exceptions.OutOfMemoryError("full"), ray.exceptions.NodeDiedError("gone")],
)
def test_lines_of_a_lost_worker_are_computed_again(pool, monkeypatch, lost):
    assert finish(pool, monkeypatch, lost) == []
    (batch,) = pool._repeated
    assert batch.deaths == 1


def test_an_error_of_the_computation_is_that_of_the_lines(pool, monkeypatch):
    error = ray.exceptions.RayTaskError("compute", "traceback", ValueError("too long"))
    assert finish(pool, monkeypatch, error) == [worker_pool.Failure("too long")]
    assert not pool._repeated
