"""Actors on a cluster that compute batches; what a lost one had is computed again.

Ray restarts an actor, on another node if its node is lost. The pool sends the batches
of a lost actor to others. A batch that loses several actors is not repeated for ever.

An error of the code may be due to the lines or to the actor: it may lack memory, or its
device may be broken. So another actor computes the batch, on another node if there is
one; if it succeeds, the first one is started again. If it fails as well, it computes a
line that was computed before. Only if it can, the lines are to blame. A worker that
cannot is started again, and given up if it still cannot.
"""

import collections
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError

from t2t_keras.console import say
from t2t_keras.errors import UserError, first_line

from .cluster import LifeWatch, require_start
from .flags import WorkerSize
from .text_worker import Outcome, Request, TextWorker
from .windows import Batch, Line, Window

_MAX_DEATHS = 2  # of the workers that compute one batch
_MAX_CURES = 3  # of a worker: after so many starts it is given up
_BATCHES_AHEAD = 2  # of each worker, so that it does not wait for the next one
_SECONDS_TO_WAIT = 1.0
# What any worker can compute, as long as no other line was; source and target.
_SIMPLE_LINE = Line(0, 1, ("a", "a"))


class Failure(NamedTuple):
    """Why a batch could not be computed.

    Attributes:
        reason: the first line of the error.
    """

    reason: str


class _Worker:
    """An actor, and what it has to do.

    Attributes:
        actor: the handle of Ray.
        is_ready: whether the model is loaded.
        node: the node that has it; "": not yet known.
        batches: the batches that were sent and not yet answered, by reference.
        starts: how often it was started again because of errors.
        cures: how often, because of errors that others did not have.
    """

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.is_ready = False
        self.node = ""
        self.starts = 0
        self.cures = 0
        self.batches: dict[Any, Batch] = {}

    def can_take(self, batch: Batch) -> bool:
        """Whether the batch can be sent.

        A batch that has lost a worker is computed alone, so that no other is blamed,
        and so is a good line by which the worker shows that it works.
        """
        if not self.is_ready or len(self.batches) >= _BATCHES_AHEAD:
            return False
        suspects = [x for x in (batch, *self.batches.values()) if x.deaths or x.suspect]
        return not (suspects and self.batches)


class WorkerPool:
    """The actors of a command.

    Args:
        request: the model, and what is asked of it.
        size: what an actor takes.
        count: the number of actors.
        worker_class: the class of the actors.
        tick: called at least once in two seconds with the number of actors that work.

    Attributes:
        size: what an actor takes.

    Raises:
        UserError: no actor starts, because others use the cluster.
    """

    def __init__(
        self,
        request: Request,
        size: WorkerSize,
        count: int,
        worker_class: type = TextWorker,
        tick: Callable[[int], None] = lambda workers: None,
    ) -> None:
        # With `max_restarts=-1` Ray restarts a lost actor as soon as it fits.
        # Methods are not repeated, except `start`, which waits for the restart.
        actor_class = ray.remote(worker_class).options(
            num_cpus=size.cores,
            num_gpus=size.gpus,
            max_restarts=-1,
            scheduling_strategy="SPREAD",
        )
        self._workers: list[_Worker] = []
        for _ in range(count):
            self._workers.append(_Worker(actor_class.remote(request)))
        self.size = size
        self._tick = tick
        self._repeated: collections.deque[Batch] = collections.deque()
        self._good_line = _SIMPLE_LINE
        self._loading: dict[Any, _Worker] = {}
        self._life = LifeWatch("all workers are lost, and none has started again")
        alive = []
        for worker in self._workers:
            alive.append(worker.actor.alive.remote())
        require_start(alive, f"worker of {size}")
        for worker in self._workers:
            self._load(worker)

    def repeat(self, batches: list[Batch]) -> None:
        """Computes further batches, before all others."""
        self._repeated.extendleft(reversed(batches))

    def outcomes(
        self, batches: Iterator[Batch | None]
    ) -> Iterator[tuple[Batch, Outcome | Failure]]:
        """Yields each batch with its outcome, in any order.

        Args:
            batches: the batches; None: there is none at the moment.

        Raises:
            UserError: the model cannot be loaded, no worker can compute anything, or
                all are lost.
        """
        upcoming: Batch | None = None
        is_exhausted = False
        while True:
            while True:
                if upcoming is None and self._repeated:
                    upcoming = self._repeated.popleft()
                if upcoming is None and not is_exhausted:
                    try:
                        upcoming = next(batches)
                    except StopIteration:
                        is_exhausted = True
                if upcoming is None or not self._send(upcoming):
                    break
                upcoming = None
            in_flight = [ref for worker in self._workers for ref in worker.batches]
            if not in_flight and upcoming is None and is_exhausted:
                if self._repeated:
                    continue
                return
            yield from self._collect(in_flight)

    def _load(self, worker: _Worker) -> None:
        """Makes an actor load the model, as soon as it runs."""
        worker.is_ready = False
        start = worker.actor.start.options(max_task_retries=-1)
        good_line = self._good_line if worker.starts else None
        self._loading[start.remote(good_line)] = worker

    def _send(self, batch: Batch) -> bool:
        """Sends a batch to the worker that has least to do; false: none can take it."""
        free = [worker for worker in self._suitable(batch) if worker.can_take(batch)]
        if not free:
            return False
        self._send_to(min(free, key=lambda worker: len(worker.batches)), batch)
        return True

    def _suitable(self, batch: Batch) -> list[_Worker]:
        """Returns the workers for a batch: others, on other nodes, if it has failed."""
        ready = [worker for worker in self._workers if worker.is_ready]
        elsewhere = [x for x in ready if batch.failed_on not in ("", x.node)]
        return elsewhere or [x for x in ready if x is not batch.failed_by] or ready

    def _send_to(self, worker: _Worker, batch: Batch) -> None:
        ref = worker.actor.compute.remote(batch.lines, batch.seed_offset)
        worker.batches[ref] = batch

    def _collect(
        self, in_flight: list[Any]
    ) -> Iterator[tuple[Batch, Outcome | Failure]]:
        """Waits a moment for outcomes, and yields them."""
        done, _ = ray.wait(
            [*in_flight, *self._loading],
            num_returns=1,
            timeout=_SECONDS_TO_WAIT,
        )
        for ref in done:
            if ref in self._loading:
                self._finish_loading(ref)
            else:
                yield from self._finish(ref)
        ready = sum(worker.is_ready for worker in self._workers)
        self._life.check(ready > 0)
        self._tick(ready)

    def _finish_loading(self, ref: Any) -> None:
        """Notes that an actor has started.

        Raises:
            UserError: it cannot load the model, or, as the only one, compute a line.
        """
        worker = self._loading.pop(ref)
        if worker not in self._workers:
            return  # it was given up
        try:
            worker.node = ray.get(ref)
            worker.is_ready = True
        except RayTaskError as error:
            event = (
                "fails with every line" if worker.starts else "cannot load the model"
            )
            reason = f"a worker {event}: {_reason(error)}"
            if not worker.starts or len(self._workers) == 1:
                raise UserError(reason) from None
            self._give_up(worker, reason)
        except RayError:  # it died again
            time.sleep(_SECONDS_TO_WAIT)
            self._load(worker)

    def _finish(self, ref: Any) -> Iterator[tuple[Batch, Outcome | Failure]]:
        """Yields the outcome of a batch, or repeats the batch of a lost actor."""
        worker = next(worker for worker in self._workers if ref in worker.batches)
        batch = worker.batches.pop(ref)
        try:
            outcome = ray.get(ref)
        except RayTaskError as error:
            yield from self._handle_error(worker, batch, error)
        except RayError:  # not the lines' fault: the actor, its node or memory is lost
            if worker.is_ready:
                say("a worker is lost; others compute its lines")
                self._load(worker)
            batch.reason = batch.reason or "it ends the worker that computes it"
            yield from self._handle_loss(worker, batch)
        else:
            yield self._finish_batch(worker, batch, outcome)

    def _finish_batch(
        self, worker: _Worker, batch: Batch, outcome: Outcome
    ) -> tuple[Batch, Outcome | Failure]:
        """Returns the outcome of a batch, or the failure of a line that it tests."""
        if batch.suspect is not None:
            return batch.suspect, Failure(batch.suspect.reason)
        if self._good_line is _SIMPLE_LINE:
            self._good_line = _shortest(batch.lines) or _SIMPLE_LINE
        if batch.failed_by not in (None, worker):
            self._cure(batch)
        return batch, outcome

    def _handle_error(
        self, worker: _Worker, batch: Batch, error: RayTaskError
    ) -> Iterator[tuple[Batch, Failure]]:
        """Yields the failure of some lines, or has another worker compute them first.

        The lines are to blame only if the worker computes a good one afterwards.
        """
        batch.reason = _reason(error)
        is_final = (
            isinstance(error.cause, UserError)  # on purpose
            or batch.failed_by is not None
            or not self._has_other(worker)
        )
        if batch.suspect is not None:  # the worker cannot even compute a good line
            self._restart(worker, batch.reason)
            yield from self._handle_loss(worker, batch.suspect)
        elif not is_final:
            batch.failed_by = worker
            batch.failed_on = worker.node
            batch.starts = worker.starts
            self._repeated.appendleft(batch)
        else:
            self._send_to(worker, self._test_of(batch))

    def _handle_loss(
        self, worker: _Worker, batch: Batch
    ) -> Iterator[tuple[Batch, Failure]]:
        """Repeats a batch that has lost a worker, or yields its failure.

        A single line that has lost several is to blame if a worker computes a good one.

        Raises:
            UserError: a good line has lost several workers.
        """
        batch.deaths += 1
        batch.failed_by = None
        batch.failed_on = worker.node
        if batch.deaths <= _MAX_DEATHS:
            self._repeated.appendleft(batch)
        elif batch.suspect is not None:
            raise UserError(
                "--cluster: every line ends the worker that computes it; try a few "
                "lines without --cluster"
            )
        elif len(batch.indices) > 1:
            yield batch, Failure(batch.reason)
        else:
            self._repeated.appendleft(self._test_of(batch))

    def _test_of(self, suspect: Batch) -> Batch:
        """Returns a batch with a good line, by which a worker shows that it works."""
        return Batch(Window([self._good_line]), [0], suspect=suspect)

    def _has_other(self, worker: object) -> bool:
        """Returns whether a worker other than one is ready."""
        return any(x.is_ready for x in self._workers if x is not worker)

    def _cure(self, batch: Batch) -> None:
        """Starts the worker that failed with a batch again, or gives it up.

        It does so once for all batches that have failed since the last start.
        """
        worker: Any = batch.failed_by
        if worker not in self._workers or worker.starts > batch.starts:
            return
        if worker.cures == _MAX_CURES:
            reason = f"a worker fails again and again: {batch.reason}"
            self._give_up(worker, reason)
            return
        worker.cures += 1
        self._restart(worker, batch.reason)

    def _restart(self, worker: _Worker, reason: str) -> None:
        """Starts a worker again because of an error."""
        self._take_back(worker)
        ray.kill(worker.actor, no_restart=False)
        worker.starts += 1
        say(f"a worker fails, and is started again: {reason}")
        self._load(worker)

    def _give_up(self, worker: _Worker, reason: str) -> None:
        """Ends a worker for good."""
        self._take_back(worker)
        ray.kill(worker.actor, no_restart=True)
        self._workers.remove(worker)
        say(f"{reason}; it is given up")

    def _take_back(self, worker: _Worker) -> None:
        """Lets others compute the batches of a worker."""
        for batch in worker.batches.values():
            self._repeated.append(batch.suspect or batch)
        worker.batches.clear()


def _shortest(lines: list[Line]) -> Line | None:
    """Returns the shortest line for which a model computes something."""
    computed = [line for line in lines if all(map(str.strip, line.texts))]
    return min(computed, key=lambda line: sum(map(len, line.texts)), default=None)


def _reason(error: RayError) -> str:
    """Returns the first line of the error that a worker raised."""
    return first_line(getattr(error, "cause", None) or error)
