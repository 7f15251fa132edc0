"""Who is blamed for an error: the lines, or the worker that has them."""

from collections import deque

import pytest
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.plugins.ray.text_worker import Outcome
from t2t_keras.plugins.ray.windows import Batch, Line, Window

ray = pytest.importorskip("ray", reason="needs the extra [ray]")
worker_pool = pytest.importorskip("t2t_keras.plugins.ray.worker_pool")


@pytest.fixture
def pool(monkeypatch):
    """A pool of two workers without a cluster; the first one has two batches."""
    pool = object.__new__(worker_pool.WorkerPool)
    pool._workers = [worker_pool._Worker(actor) for actor in ("a", "b")]
    for worker in pool._workers:
        worker.is_ready = True
    for name in ("reference", "next"):
        batch = Batch(Window([Line(0, 1, ("a",))]), [0])
        pool._workers[0].batches[name] = batch
    pool._repeated = deque()
    pool.killed = []
    monkeypatch.setattr(pool, "_load", lambda worker: None)
    monkeypatch.setattr(
        ray,
        "kill",
        lambda actor, no_restart: pool.killed.append((actor, no_restart)),
    )
    return pool


def finish(pool, monkeypatch, result, reference="reference"):
    def get(reference):
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(ray, "get", get)
    return [outcome for _, outcome in pool._finish(reference)]


def raised(error):
    return ray.exceptions.RayTaskError("compute", "traceback", error)


SICK = raised(RuntimeError("out of memory\nat 0x00"))


@pytest.mark.parametrize(
    "lost",
    [ray.exceptions.OutOfMemoryError("full"), ray.exceptions.NodeDiedError("gone")],
)
def test_lines_of_a_lost_worker_are_computed_again(pool, monkeypatch, lost):
    assert finish(pool, monkeypatch, lost) == []
    (batch,) = pool._repeated
    assert batch.deaths == 1


def test_an_error_of_two_workers_is_that_of_the_lines(pool, monkeypatch):
    assert finish(pool, monkeypatch, SICK) == []
    (batch,) = pool._repeated
    pool._workers[1].batches["again"] = batch
    failure = worker_pool.Failure("out of memory")
    assert finish(pool, monkeypatch, SICK, "again") == [failure]
    assert not pool.killed


def test_a_refusal_is_that_of_the_lines(pool, monkeypatch):
    error = raised(UserError("too long"))
    assert finish(pool, monkeypatch, error) == [worker_pool.Failure("too long")]
    assert not pool._repeated


def test_a_worker_whose_errors_no_other_has_is_started_again(pool, monkeypatch):
    """It is given up at last; its batches are computed by the others."""
    sick, sound = pool._workers
    outcome = Outcome(["x"], {})
    for cures in range(1, worker_pool._MAX_CURES + 2):
        waiting = sick.batches["next"]
        assert finish(pool, monkeypatch, SICK) == []
        batch = pool._repeated.popleft()
        sound.batches["again"] = batch
        assert finish(pool, monkeypatch, outcome, "again") == [outcome]
        assert [*pool._repeated] == [waiting] and not sick.batches
        is_given_up = cures > worker_pool._MAX_CURES
        assert pool.killed == [("a", is_given_up)]
        pool.killed.clear()
        pool._repeated.clear()
        sick.batches = {"reference": batch, "next": waiting}
        batch.failed_by = None
    assert pool._workers == [sound]


def test_a_worker_alone_is_started_again_before_lines_are_blamed(pool, monkeypatch):
    worker = pool._workers[0]
    pool._workers = [worker]
    assert finish(pool, monkeypatch, SICK) == []
    assert pool.killed == [("a", False)]
    assert len(pool._repeated) == 2
    worker.batches["again"] = pool._repeated.popleft()
    failure = worker_pool.Failure("out of memory")
    assert finish(pool, monkeypatch, SICK, "again") == [failure]


def test_a_worker_is_started_again_once_for_all_that_failed_before(pool, monkeypatch):
    sick, sound = pool._workers
    for reference in ("reference", "next"):
        assert finish(pool, monkeypatch, SICK, reference) == []
    outcome = Outcome(["x"], {})
    for batch in list(pool._repeated):
        sound.batches["again"] = batch
        assert finish(pool, monkeypatch, outcome, "again") == [outcome]
    assert (pool.killed, sick.cures) == ([("a", False)], 1)


def test_a_worker_that_cannot_load_again_is_given_up(pool, monkeypatch):
    sick, sound = pool._workers
    pool._loading = {"load": sick, "late": sick}

    def get(reference):
        raise SICK

    monkeypatch.setattr(ray, "get", get)
    refused("cannot load the model: out of memory", pool._finish_loading, "load")
    pool._loading["load"] = sick
    sick.cures = 1
    pool._finish_loading("load")
    assert (pool._workers, pool.killed) == ([sound], [("a", True)])
    assert len(pool._repeated) == 2
    pool._finish_loading("late")  # of the one that was given up
    sound.cures = 1
    pool._loading["load"] = sound
    refused("cannot load the model: out of memory", pool._finish_loading, "load")
