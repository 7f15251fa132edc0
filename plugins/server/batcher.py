"""Dynamic batching: sentences that wait are run together, by their cost and age."""

import asyncio
import bisect
import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from t2t_keras.options import check_options, option

# After this time without a batch, a thread is not busy, and expects no more values.
_IDLE_SECONDS = 0.1
# The delay in the queue of a request of `max_work`, unless the time limit is shorter.
_DELAY_SECONDS = 30.0
# The longest delay, and the time that the waiting work may take, as fractions of the
# time limit: a third is left to expensive rows that are late, and to run a request.
_LONGEST_DELAY = 1 / 3
_LONGEST_QUEUE = 1 / 3
# By how much expensive rows that are late are overdue, as such a fraction.
_LATE = 1 / 10
# The time in which the measurement of the speed loses half of its weight.
_HALF_LIFE_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of the server, for the flag `--limits`."""

    max_body_bytes: int = option(1 << 20, "the largest request body", ge=1)
    max_characters: int = option(5000, "the most characters in a sentence", ge=1)
    max_phrase_characters: int = option(
        1000, "the most characters in the phrases of a sentence", ge=0
    )
    max_beam_size: int = option(32, "the largest beam size of a request", ge=1)
    max_work: int = option(
        1_000_000, "the most work of a request; see `Service.work`", ge=1
    )
    max_batch_work: int = option(
        16_000, "the most work of a batch of expensive sentences", ge=1
    )
    max_batch_sentences: int = option(64, "the most sentences of a batch", ge=1)
    max_queue: int = option(
        1024,
        "the most sentences of a request; while as many wait for a model, requests are "
        "refused",
        ge=1,
    )
    batch_milliseconds: float = option(
        5.0, "how long an idle thread waits for its share of the sentences", ge=0
    )
    timeout_seconds: float = option(
        30.0, "the time in which a request is answered", gt=0
    )
    max_values: int = option(
        1 << 17, "the most values (strings, numbers, lists, objects) in a body", ge=1
    )
    max_connections: int = option(
        1000,
        "the most connections; fewer if the limit of file descriptors is low",
        ge=1,
    )
    max_unfinished_bytes: int = option(
        64 << 20, "the most bytes of unfinished request bodies in all", ge=1
    )
    max_unread_bytes: int = option(
        64 << 20, "the most bytes of answers that clients have not read in all", ge=1
    )

    def __post_init__(self) -> None:
        check_options(Limits, vars(self))


class Overloaded(Exception):
    """The queue is full, or the server is loading or shutting down."""


@dataclasses.dataclass(eq=False, slots=True)
class Row:
    """A value that waits for its result.

    Attributes:
        key: the same for values that may be run together.
        value: the value.
        work: the work it takes.
        arrived: the time of arrival.
        due: its place in the queue.
        future: receives the result; it is done early if nobody waits for it any more.
    """

    key: Hashable
    value: Any
    work: int
    arrived: float
    due: float
    future: Future[Any]


class FairQueue:
    """The rows of all requests that wait: which run next, and what is refused.

    A row is due at its time of arrival plus a delay, which grows with the square root
    of the work of its request up to this row, to at most a third of the time limit. The
    row that is due first runs first. So cheap requests overtake expensive ones, but
    none waits forever, and nothing waits for all rows of a large request.

    Rows of much work are expensive, and not batched with others. The last thread runs
    only these; while the other threads are busy, it rests for two thirds of the time.
    The other threads, except for the first one, help when they have nothing else to do.
    When expensive rows are late, all threads run them without a rest.

    A request is refused if the queue is full when it arrives. Its size does not
    matter: otherwise, large requests would be refused while small ones fill each gap.
    The queue is full if it has `max_queue` rows, or if they take more than a third of
    the time limit at the speed of the last seconds. So what is accepted can be answered
    in time.

    No method waits or reads a clock: `now` is the time in seconds.

    Args:
        limits: the limits.
        cheap_work: the most work of a row that is not expensive.
        threads: the number of threads besides the last one.

    Attributes:
        cheap: the rows that are not expensive, in their order.
        expensive: the expensive rows, in their order.
        running: the number of cheap rows that run.
        is_closed: whether all requests are refused.
    """

    def __init__(self, limits: Limits, cheap_work: float, threads: int) -> None:
        self.cheap: list[Row] = []
        self.expensive: list[Row] = []
        self.running = 0
        self.is_closed = False
        self._limits = limits
        self._cheap_work = cheap_work
        self._last_thread = threads
        self._busy_until = 0.0  # with cheap rows
        self._rest_until = 0.0  # of the last thread
        # The speed is measured while rows wait: otherwise it depends on the clients.
        self._measured_work = 0.0
        self._measured_seconds = 0.0
        self._measured_until = 0.0
        self._has_waited = False  # whether rows have waited ever since then
        self._waiting_work = 0
        self._dropped_at = -math.inf  # when rows were dropped from a full queue

    def __len__(self) -> int:
        """Returns the number of rows that wait."""
        return len(self.cheap) + len(self.expensive)

    def is_cheap(self, work: int) -> bool:
        """Returns whether a row of some work is not expensive."""
        return work <= self._cheap_work

    def add(
        self,
        keys: Sequence[Hashable],
        values: Sequence[Any],
        works: Sequence[int],
        now: float,
    ) -> list[Row]:
        """Adds the rows of a request and returns them.

        Raises:
            Overloaded: the queue is full or closed.
        """
        self.require_room(now)
        limit = self._limits.timeout_seconds
        slope = min(_DELAY_SECONDS, limit) / math.sqrt(self._limits.max_work)
        rows = []
        total = 0
        for key, value, work in zip(keys, values, works, strict=True):
            total += work
            delay = min(slope * math.sqrt(total), _LONGEST_DELAY * limit)
            row = Row(key, value, work, now, now + delay, Future())
            lane = self.cheap if self.is_cheap(work) else self.expensive
            bisect.insort(lane, row, key=lambda row: row.due)
            rows.append(row)
        self._waiting_work += total
        return rows

    def require_room(self, now: float) -> None:
        """Refuses a request if the queue is full or closed.

        Raises:
            Overloaded: it is.
        """
        if self.is_closed:
            raise Overloaded("the server is shutting down")
        if self._is_full():
            if now >= self._dropped_at + _IDLE_SECONDS:  # it looks at every row
                self._dropped_at = now
                self._drop(self.cheap)
                self._drop(self.expensive)
            if self._is_full():
                raise Overloaded("the queue is full; try again later")

    def _drop(self, lane: list[Row]) -> None:
        """Removes the rows of a lane that nobody waits for."""
        self._remove(lane, {row for row in lane if row.future.done()})

    def _remove(self, lane: list[Row], rows: Collection[Row]) -> None:
        if rows:
            lane[:] = [row for row in lane if row not in rows]
            self._waiting_work -= sum(row.work for row in rows)

    def _is_full(self) -> bool:
        limits = self._limits
        if len(self) >= limits.max_queue:
            return True
        # A batch for each thread may wait, however slow the first ones were.
        if len(self) < limits.max_batch_sentences * (self._last_thread + 1):
            return False
        if not self._measured_seconds:
            return False
        speed = self._measured_work / self._measured_seconds
        return self._waiting_work > _LONGEST_QUEUE * limits.timeout_seconds * speed

    def lane(self, thread: int, now: float) -> list[Row]:
        """Returns the rows from which a thread takes its next batch; may be empty."""
        if self.expensive and self._may_run_expensive(thread, now):
            return self.expensive
        return [] if thread == self._last_thread else self.cheap

    def _may_run_expensive(self, thread: int, now: float) -> bool:
        due = self.expensive[0].due
        cheap_due = self.cheap[0].due if self.cheap else now
        is_idle = not self.cheap and now >= self._busy_until
        is_late = due + _LATE * self._limits.timeout_seconds <= cheap_due
        if self.is_closed or is_late:
            return True
        if thread == self._last_thread:
            return is_idle or now >= self._rest_until
        return is_idle and thread > 0

    def take(self, lane: list[Row], count: int) -> list[Row]:
        """Removes a batch from a lane and returns it.

        It has the first row and others with the same key. It is empty if nobody waits
        for any row of the lane.

        Args:
            lane: what `lane` returned.
            count: the most rows of the batch.
        """
        most_work = self._limits.max_batch_work if lane is self.expensive else math.inf
        batch: list[Row] = []
        work = 0
        self._drop(lane)
        for row in lane:
            fits = len(batch) < count and work + row.work <= most_work
            if not batch or (fits and row.key == batch[0].key):
                batch.append(row)
                work += row.work
        self._remove(lane, set(batch))
        if batch and lane is self.cheap:
            self.running += len(batch)
            self._busy_until = math.inf
        self._has_waited = self._has_waited and len(self) > 0
        return batch

    def finish(self, thread: int, batch: list[Row], start: float, now: float) -> None:
        """Records that a batch has been run.

        Args:
            thread: the thread.
            batch: the batch.
            start: when it was taken.
            now: the time.
        """
        if self.is_cheap(batch[0].work):
            self.running -= len(batch)
            self._busy_until = math.inf if self.running else now + _IDLE_SECONDS
        if thread == self._last_thread:
            self._rest_until = now + 2 * (now - start)
        if self._has_waited:
            seconds = now - self._measured_until
            weight = 0.5 ** (seconds / _HALF_LIFE_SECONDS)
            work = sum(row.work for row in batch)
            self._measured_work = weight * self._measured_work + work
            self._measured_seconds = weight * self._measured_seconds + seconds
        self._measured_until = now
        self._has_waited = len(self) > 0


class Batcher:
    """A `FairQueue`, and threads that run its rows in batches.

    A thread takes the first row and others with the same key, up to the limits of a
    batch. Rows that nobody waits for any more are not run.

    Batches are largest if each thread takes its share of the cheap rows in the system:
    those that wait, those that run, and those of the thread's last batch, whose clients
    may ask again. An idle thread waits until its share is there, for at most
    `batch_milliseconds`, and takes no more than its share. A single client that sends
    one value at a time does not wait.

    Args:
        run: called in the thread with a key, values, and a function that returns
            whether anybody still waits for them; returns their results.
        limits: the limits.
        observe: called in the thread after each batch, with its size and seconds.
        cheap_work: the most work of a value that is not expensive.
        threads: the number of batches that run at the same time. One more thread runs
            expensive values.
    """

    def __init__(
        self,
        run: Callable[[Any, list[Any], Callable[[], bool]], Sequence[Any]],
        limits: Limits,
        observe: Callable[[int, float], None] = lambda size, seconds: None,
        cheap_work: float = math.inf,
        threads: int = 1,
    ) -> None:
        self._run = run
        self._limits = limits
        self._observe = observe
        self._queue = FairQueue(limits, cheap_work, threads)
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._has_expensive = threading.Condition(lock)  # wakes the last thread
        self._threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True)
            for number in range(threads + 1)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Returns the number of values that wait."""
        return len(self._queue)

    def require_room(self) -> None:
        """Refuses a request, before it is parsed, if `submit` would refuse it now.

        Raises:
            Overloaded: the queue is full, or the batcher is closed.
        """
        with self._changed:
            self._queue.require_room(time.monotonic())

    async def submit(
        self, keys: Sequence[Hashable], values: Sequence[Any], works: Sequence[int]
    ) -> list[Any]:
        """Returns the results of values, which are batched with others of the same key.

        If the caller is cancelled, values that still wait are not run.

        Args:
            keys: the keys of the values.
            values: the values of one request.
            works: the work of each.

        Raises:
            Overloaded: the queue is full, or the batcher is closed.
            Exception: what `run` raised for one of the values alone.
        """
        with self._changed:
            rows = self._queue.add(keys, values, works, time.monotonic())
            self._wake()
        try:
            return await asyncio.gather(*(asyncio.wrap_future(x.future) for x in rows))
        finally:  # after an error or cancellation; otherwise all are done
            for row in rows:
                row.future.cancel()

    def close(self, wait: bool = True) -> None:
        """Refuses further values; those that wait are still run.

        Args:
            wait: whether to return when they have been run.
        """
        with self._changed:
            self._queue.is_closed = True
            self._wake()
        for thread in self._threads if wait else ():
            thread.join()

    def _wake(self) -> None:
        """Wakes the threads that may have something to do."""
        self._changed.notify_all()
        if self._queue.expensive or self._queue.is_closed:
            self._has_expensive.notify_all()

    def _work(self, thread: int) -> None:
        answered = 0
        end = -math.inf
        while batch := self._next_batch(thread, answered, end):
            start = time.monotonic()
            end = self._run_batch(batch)
            now = time.monotonic()
            with self._changed:
                self._queue.finish(thread, batch, start, now)
            self._observe(len(batch), now - start)
            answered = len(batch) if self._queue.is_cheap(batch[0].work) else 0

    def _next_batch(self, thread: int, answered: int, end: float) -> list[Row]:
        """Waits for values and takes a batch; an empty one means that all is done.

        Args:
            thread: the number of the thread.
            answered: the number of cheap values in its last batch.
            end: when that batch ended.
        """
        queue = self._queue
        is_last = thread == len(self._threads) - 1
        changed = self._has_expensive if is_last else self._changed
        with self._changed:
            while True:
                lane = queue.lane(thread, time.monotonic())
                if lane:
                    count = self._limits.max_batch_sentences
                    if lane is queue.cheap:
                        count = self._wait_for_share(answered, end)
                    if batch := queue.take(lane, count):
                        return batch
                elif queue.is_closed:
                    return []
                else:
                    # Expensive values become due, or their thread has rested.
                    changed.wait(_IDLE_SECONDS / 4 if queue.expensive else None)

    def _wait_for_share(self, answered: int, end: float) -> int:
        """Waits for the thread's share of the values; returns how many these are."""
        queue = self._queue
        now = time.monotonic()
        early = sum(row.arrived < end for row in queue.cheap)
        expected = answered if now < end + _IDLE_SECONDS else 0
        known = queue.running + early + max(expected, len(queue.cheap) - early)
        share = math.ceil(known / (len(self._threads) - 1))
        share = min(share, self._limits.max_batch_sentences)
        since = max(queue.cheap[0].arrived, end)
        self._changed.wait_for(
            lambda: len(queue.cheap) >= share or queue.is_closed,
            max(since + self._limits.batch_milliseconds / 1000 - now, 0),
        )
        return share

    def _run_batch(self, batch: list[Row]) -> float:
        """Runs a batch; if that fails, each value alone, so that others succeed.

        Returns:
            The time before the first answer: clients may ask again before the last one.
        """

        def is_wanted() -> bool:
            return not all(row.future.done() for row in batch)

        try:
            results = self._run(batch[0].key, [x.value for x in batch], is_wanted)
            delivery = list(zip(batch, results, strict=True))
        except Exception as error:
            end = time.monotonic()
            if len(batch) == 1:
                with contextlib.suppress(InvalidStateError):  # nobody waits
                    batch[0].future.set_exception(error)
            for row in batch:
                if not row.future.done():
                    self._run_batch([row])
            return end
        end = time.monotonic()
        for row, result in delivery:
            with contextlib.suppress(InvalidStateError):
                row.future.set_result(result)
        return end
