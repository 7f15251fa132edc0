"""Whether an error is due to lines, or to the worker that has them."""

import functools
import random
from collections import deque
from types import SimpleNamespace

import pytest
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.plugins.ray.text_worker import Outcome
from t2t_keras.plugins.ray.windows import Batch, Line, Window, batches_by_length

ray = pytest.importorskip("ray", reason="needs the extra [ray]")
worker_pool = pytest.importorskip("t2t_keras.plugins.ray.worker_pool")


class Reference:
    """The reference to a result of an actor."""

    def __init__(self, actor, lines):
        self.actor = actor
        self.texts = [line.texts[0] for line in lines if line]


class Actor:
    """An actor; what it is asked is computed when it is read.

    Attributes:
        name: the name.
        asked: the reference of the last call.
    """

    def __init__(self, name):
        self.name = name
        self.asked = None
        self.compute = SimpleNamespace(remote=self._compute)
        call = SimpleNamespace(remote=lambda line: Reference(self, [line]))
        self.start = SimpleNamespace(options=lambda max_task_retries: call)

    def _compute(self, lines, seed_offset):
        self.asked = Reference(self, lines)
        return self.asked


@pytest.fixture
def pool(monkeypatch):
    """A pool of two workers without a cluster; the first one has two batches."""
    pool = object.__new__(worker_pool.WorkerPool)
    pool._workers = [worker_pool._Worker(Actor(name)) for name in ("a", "b")]
    for worker in pool._workers:
        worker.is_ready = True
        worker.node = f"node of {worker.actor.name}"
    for name in ("reference", "next"):
        batch = Batch(Window([Line(0, 1, ("a",))]), [0])
        pool._workers[0].batches[name] = batch
    pool._repeated = deque()
    pool._good_line = Line(0, 7, ("a good line",))
    pool.killed = []
    monkeypatch.setattr(pool, "_load", lambda worker: None)
    monkeypatch.setattr(
        ray,
        "kill",
        lambda actor, no_restart: pool.killed.append((actor.name, no_restart)),
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
def test_lines_of_a_lost_worker_are_recomputed(pool, monkeypatch, lost):
    assert finish(pool, monkeypatch, lost) == []
    (batch,) = pool._repeated
    assert batch.deaths == 1


def test_a_batch_that_fails_twice_is_repeated_line_by_line(pool, monkeypatch):
    """The second worker must then compute a good line."""
    assert finish(pool, monkeypatch, SICK) == []
    (batch,) = pool._repeated
    pool._workers[1].batches["again"] = batch
    assert finish(pool, monkeypatch, SICK, "again") == []
    asked = pool._workers[1].actor.asked
    assert asked.texts == ["a good line"]
    failure = worker_pool.Failure("out of memory")
    assert finish(pool, monkeypatch, Outcome(["x"], {}), asked) == [failure]
    assert not pool.killed


def test_a_refused_batch_is_repeated_line_by_line(pool, monkeypatch):
    assert finish(pool, monkeypatch, raised(UserError("too long"))) == []
    assert not pool._repeated
    asked = pool._workers[0].actor.asked
    failure = worker_pool.Failure("too long")
    assert finish(pool, monkeypatch, Outcome(["x"], {}), asked) == [failure]


@pytest.mark.parametrize("error", [SICK, ray.exceptions.ActorDiedError()])
def test_a_batch_that_failed_goes_to_another_node(pool, monkeypatch, error):
    for node in ("node of a", "node of c"):
        worker = worker_pool._Worker(Actor(node[-1]))
        worker.is_ready = True
        worker.node = node
        pool._workers.append(worker)
    finish(pool, monkeypatch, error)
    (batch,) = pool._repeated
    actors = [worker.actor.name for worker in pool._suitable(batch)]
    assert actors == ["b", "c"]
    for worker in pool._workers:
        worker.node = "node of a"
    actors = [worker.actor.name for worker in pool._suitable(batch)]
    assert actors == (["b", "a", "c"] if batch.failed_by else ["a", "b", "a", "c"])


def test_a_worker_that_alone_fails_is_restarted(pool, monkeypatch):
    """After enough restarts it is given up, and the other computes its batches."""
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


def test_a_worker_is_restarted_once_for_all_earlier_failures(pool, monkeypatch):
    sick, sound = pool._workers
    for reference in ("reference", "next"):
        assert finish(pool, monkeypatch, SICK, reference) == []
    outcome = Outcome(["x"], {})
    for batch in list(pool._repeated):
        sound.batches["again"] = batch
        assert finish(pool, monkeypatch, outcome, "again") == [outcome]
    assert (pool.killed, sick.cures) == ([("a", False)], 1)


def test_a_worker_that_cannot_restart_is_given_up(pool, monkeypatch):
    sick, sound = pool._workers
    pool._loading = {"load": sick, "late": sick}

    def get(reference):
        raise SICK

    monkeypatch.setattr(ray, "get", get)
    refused("cannot load the model: out of memory", pool._finish_loading, "load")
    pool._loading["load"] = sick
    sick.starts = 1
    pool._finish_loading("load")
    assert (pool._workers, pool.killed) == ([sound], [("a", True)])
    assert len(pool._repeated) == 2
    pool._finish_loading("late")  # of the one that was given up
    sound.starts = 1
    pool._loading["load"] = sound
    refused("fails with every line: out of memory", pool._finish_loading, "load")


class Process:
    """What the process of an actor does with lines.

    Args:
        is_sick: whether it fails with every line, also after a restart.
    """

    def __init__(self, is_sick=False):
        self.is_sick = is_sick
        self.is_broken = False  # until it starts again

    def compute(self, texts):
        if not texts:
            return None  # the model is loaded
        if "deadly" in texts:
            self.is_broken = False
            raise ray.exceptions.ActorDiedError
        if "poison" in texts:
            self.is_broken = True
        if "refused" in texts:
            raise raised(UserError("too long"))
        if self.is_sick or self.is_broken or "bad" in texts:
            raise SICK
        return Outcome([text.upper() for text in texts], {})


def compute_all(pool, monkeypatch, texts, sick, seed):
    """Computes lines by workers without a cluster, of which some are sick.

    Returns:
        The row of each line; None: it is to blame.
    """
    choose = random.Random(seed).choice
    processes = {}
    pool._workers = []
    for index, is_sick in enumerate(sick):
        worker = worker_pool._Worker(Actor(f"{index}"))
        worker.is_ready = True
        worker.node = f"{index % 2}"
        processes[worker.actor] = Process(is_sick)
        pool._workers.append(worker)
    pool._loading = {}
    load = worker_pool.WorkerPool._load
    monkeypatch.setattr(pool, "_load", functools.partial(load, pool))
    pool._life = SimpleNamespace(check=lambda is_alive: None)
    pool._tick = lambda workers: None
    pool._good_line = worker_pool._SIMPLE_LINE

    def wait(references, num_returns, timeout):
        return ([choose(references)] if references else []), []

    def kill(actor, no_restart):
        processes[actor].is_broken = False

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "kill", kill)
    monkeypatch.setattr(ray, "get", lambda x: processes[x.actor].compute(x.texts))
    window = Window([Line(0, i, (text,)) for i, text in enumerate(texts, 1)])
    rows = [None] * len(texts)
    for batch, outcome in pool.outcomes(iter(batches_by_length(window, 1))):
        if not isinstance(outcome, worker_pool.Failure):
            for i, row in zip(batch.indices, outcome.rows, strict=True):
                rows[i] = row
        elif len(batch.indices) > 1:
            pool.repeat(batch.halves())
    return rows


@pytest.mark.parametrize("fault", ["bad", "refused", "poison", "deadly"])
@pytest.mark.parametrize("sick", ["0", "00", "01", "0110"])
def test_a_run_of_bad_lines_does_not_stop_the_others(pool, monkeypatch, fault, sick):
    """Exactly these are blamed, whichever workers are sick."""
    sick = [digit == "1" for digit in sick]
    good = [f"line {i}" for i in range(60)]
    for seed in range(3):
        for texts in ([fault] * 40 + good, good + [fault] * 40, [fault] * 30):
            rows = compute_all(pool, monkeypatch, texts, sick, seed)
            assert rows == [None if x == fault else x.upper() for x in texts]


@pytest.mark.parametrize("count", [1, 3])
def test_workers_that_fail_with_every_line_end_the_command(pool, monkeypatch, count):
    arguments = (pool, monkeypatch, ["line"] * 60, [True] * count, 0)
    refused("a worker fails with every line: out of memory", compute_all, *arguments)


def test_lines_that_end_every_worker_end_the_command(pool, monkeypatch):
    monkeypatch.setattr(worker_pool, "_SIMPLE_LINE", Line(0, 1, ("deadly",)))
    arguments = (pool, monkeypatch, ["deadly"] * 60, [False] * 2, 0)
    refused("every line ends the worker that computes it", compute_all, *arguments)
