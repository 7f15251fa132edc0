"""Fairness between clients, and batches: threads run the rows of all requests together.

`FairQueue` decides which rows run next and what is refused, without a clock; `Batcher`
has the threads.
"""

import asyncio
import bisect
import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, InvalidStateError

from .requests import Key, Limits, Outputs, Texts

# After this time without a batch, a thread is idle and expects no more values.
IDLE_SECONDS = 0.1
# The delay of a request of `max_work` in the queue, unless the time limit is shorter.
_DELAY_SECONDS = 30.0
# The maximum delay, and the time that the waiting work may take, as fractions of the
# time limit: the last third is for expensive rows that are late, and to run a request.
_MAX_DELAY = 1 / 3
_MAX_QUEUE_TIME = 1 / 3
# An expensive row is late when it is overdue by this fraction of the time limit.
_LATE = 1 / 10
# The time in which a measurement of the speed loses half of its weight.
_HALF_LIFE_SECONDS = 5.0


class Overloaded(Exception):
    """The queue is full, or the server is loading or shutting down."""


@dataclasses.dataclass(eq=False, slots=True)
class Row:
    """A value that waits for its result.

    Attributes:
        key: equal for values that may be run together.
        value: the value.
        work: the work it takes.
        arrived: the time of arrival.
        due: the time that orders the queue.
        future: receives the result; it is done early if nobody waits for it any more.
    """

    key: Key
    value: Texts
    work: int
    arrived: float
    due: float
    future: Future[Outputs]


class FairQueue:
    """The waiting rows of all requests: which run next, and what is refused.

    A row is due at its time of arrival plus a delay, which grows with the square root
    of the work of its request up to this row, to at most a third of the time limit. The
    row that is due first runs first. So cheap requests overtake expensive ones, but
    none waits forever, and nothing waits for all rows of a large request.

    Rows of much work are expensive, and not batched with others. The last thread runs
    only these; while the other threads are busy, it rests for two thirds of the time.
    The other threads, except for thread 0, help when they have nothing else to do.
    When expensive rows are late, all threads run them without a rest.

    A request is refused if the queue is full when it arrives, whatever its size:
    otherwise large requests would be refused while small ones fill each gap. The queue
    is full if it has `max_queue` rows, or if they take more than a third of the time
    limit at the recent speed. So accepted requests can be answered in time.

    No method waits or reads a clock: `current_time` is in seconds.

    Args:
        limits: the limits.
        cheap_work: maximum work of a row that is not expensive.
        threads: the number of threads besides the last one.

    Attributes:
        cheap: the waiting rows that are not expensive, ordered by `due`.
        expensive: the waiting expensive rows, ordered by `due`.
        running: the number of cheap rows that are running.
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
        self._cheap_until = 0.0  # when the threads cease to be busy with cheap rows
        self._last_thread_rests_until = 0.0
        # The speed is measured while rows wait: otherwise it depends on the clients.
        self._measured_work = 0.0
        self._measured_seconds = 0.0
        self._measured_until = 0.0
        self._has_waited = False  # whether rows have waited since then
        self._waiting_work = 0
        self._dropped_at = -math.inf  # when rows were dropped from a full queue

    def __len__(self) -> int:
        """Returns the number of waiting rows."""
        return len(self.cheap) + len(self.expensive)

    def is_cheap(self, work: int) -> bool:
        """Returns whether a row of some work is not expensive."""
        return work <= self._cheap_work

    def add(
        self,
        keys: Sequence[Key],
        values: Sequence[Texts],
        works: Sequence[int],
        current_time: float,
    ) -> list[Row]:
        """Adds the rows of a request and returns them.

        Raises:
            Overloaded: the queue is full or closed.
        """
        self.require_room(current_time)
        limit = self._limits.timeout_seconds
        slope = min(_DELAY_SECONDS, limit) / math.sqrt(self._limits.max_work)
        rows = []
        total = 0
        for key, value, work in zip(keys, values, works, strict=True):
            total += work
            delay = min(slope * math.sqrt(total), _MAX_DELAY * limit)
            row = Row(key, value, work, current_time, current_time + delay, Future())
            lane = self.cheap if self.is_cheap(work) else self.expensive
            bisect.insort(lane, row, key=lambda row: row.due)
            rows.append(row)
        self._waiting_work += total
        return rows

    def require_room(self, current_time: float) -> None:
        """Raises `Overloaded` if the queue is full or closed."""
        if self.is_closed:
            raise Overloaded("the server is shutting down")
        if self._is_full():
            # Not at every request, because it looks at every row.
            if current_time >= self._dropped_at + IDLE_SECONDS:
                self._dropped_at = current_time
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
        # One batch for each thread may always wait, however slow the speed so far.
        if len(self) < limits.max_batch_sentences * (self._last_thread + 1):
            return False
        if not self._measured_seconds:
            return False
        speed = self._measured_work / self._measured_seconds
        return self._waiting_work > _MAX_QUEUE_TIME * limits.timeout_seconds * speed

    def lane(self, thread: int, current_time: float) -> list[Row]:
        """Returns the rows from which a thread takes its next batch; may be empty."""
        if self.expensive and self._may_run_expensive(thread, current_time):
            return self.expensive
        return [] if thread == self._last_thread else self.cheap

    def _may_run_expensive(self, thread: int, current_time: float) -> bool:
        due = self.expensive[0].due
        cheap_due = self.cheap[0].due if self.cheap else current_time
        is_idle = not self.cheap and current_time >= self._cheap_until
        is_late = due + _LATE * self._limits.timeout_seconds <= cheap_due
        if self.is_closed or is_late:
            return True
        if thread == self._last_thread:
            return is_idle or current_time >= self._last_thread_rests_until
        return is_idle and thread > 0

    def take(self, lane: list[Row], count: int) -> list[Row]:
        """Removes a batch from a lane and returns it.

        It has the row that is due first, and others with the same key. It is empty if
        nobody waits for any row of the lane.

        Args:
            lane: what `lane` returned.
            count: maximum number of rows.
        """
        max_work = self._limits.max_batch_work if lane is self.expensive else math.inf
        batch: list[Row] = []
        work = 0
        self._drop(lane)
        for row in lane:
            fits = len(batch) < count and work + row.work <= max_work
            if not batch or (fits and row.key == batch[0].key):
                batch.append(row)
                work += row.work
        self._remove(lane, set(batch))
        if batch and lane is self.cheap:
            self.running += len(batch)
            self._cheap_until = math.inf
        self._has_waited = self._has_waited and len(self) > 0
        return batch

    def finish(
        self, thread: int, batch: list[Row], start: float, current_time: float
    ) -> None:
        """Records that a thread has run a batch, which it took at time `start`."""
        if self.is_cheap(batch[0].work):
            self.running -= len(batch)
            self._cheap_until = (
                math.inf if self.running else current_time + IDLE_SECONDS
            )
        if thread == self._last_thread:
            self._last_thread_rests_until = current_time + 2 * (current_time - start)
        if self._has_waited:
            seconds = current_time - self._measured_until
            weight = 0.5 ** (seconds / _HALF_LIFE_SECONDS)
            work = sum(row.work for row in batch)
            self._measured_work = weight * self._measured_work + work
            self._measured_seconds = weight * self._measured_seconds + seconds
        self._measured_until = current_time
        self._has_waited = len(self) > 0


class Batcher:
    """A `FairQueue`, and threads that run its rows in batches.

    A batch is the row that is due first and others with the same key, up to the limits
    of a batch. Rows that nobody waits for any more are not run.

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
        cheap_work: maximum work of a value that is not expensive.
        threads: the number of batches that run at the same time. One more thread runs
            expensive values.
    """

    def __init__(
        self,
        run: Callable[[Key, list[Texts], Callable[[], bool]], Sequence[Outputs]],
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
            threading.Thread(target=self._work, args=(index,), daemon=True)
            for index in range(threads + 1)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Returns the number of values that wait."""
        return len(self._queue)

    def require_room(self) -> None:
        """Raises `Overloaded` if `submit` would do so now."""
        with self._changed:
            self._queue.require_room(time.monotonic())

    async def submit(
        self, keys: Sequence[Key], values: Sequence[Texts], works: Sequence[int]
    ) -> list[Outputs]:
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
            futures = [asyncio.wrap_future(row.future) for row in rows]
            return await asyncio.gather(*futures)
        finally:
            # This concerns rows that are not done, after an error or a cancellation.
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
        end_time = -math.inf
        while batch := self._next_batch(thread, answered, end_time):
            start = time.monotonic()
            end_time = self._run_batch(batch)
            current_time = time.monotonic()
            with self._changed:
                self._queue.finish(thread, batch, start, current_time)
            self._observe(len(batch), current_time - start)
            answered = len(batch) if self._queue.is_cheap(batch[0].work) else 0

    def _next_batch(self, thread: int, answered: int, end_time: float) -> list[Row]:
        """Waits for values and takes a batch; it is empty when the batcher closes.

        `answered` is the number of cheap values in the thread's last batch, which ended
        at `end_time`.
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
                        count = self._wait_for_share(answered, end_time)
                    if batch := queue.take(lane, count):
                        return batch
                elif queue.is_closed:
                    return []
                else:
                    # Expensive values may become due, or their thread may have rested.
                    changed.wait(IDLE_SECONDS / 4 if queue.expensive else None)

    def _wait_for_share(self, answered: int, end_time: float) -> int:
        """Waits for the thread's share of the values, and returns its size."""
        queue = self._queue
        current_time = time.monotonic()
        early = sum(row.arrived < end_time for row in queue.cheap)
        expected = answered if current_time < end_time + IDLE_SECONDS else 0
        in_system = queue.running + early + max(expected, len(queue.cheap) - early)
        share = math.ceil(in_system / (len(self._threads) - 1))
        share = min(share, self._limits.max_batch_sentences)
        since = max(queue.cheap[0].arrived, end_time)
        self._changed.wait_for(
            lambda: len(queue.cheap) >= share or queue.is_closed,
            max(since + self._limits.batch_milliseconds / 1000 - current_time, 0),
        )
        return share

    def _run_batch(self, batch: list[Row]) -> float:
        """Runs a batch; if it fails, each value alone, so that the others succeed.

        Returns:
            The time before the first answer: clients may ask again before the last.
        """

        def is_wanted() -> bool:
            return not all(row.future.done() for row in batch)

        try:
            results = self._run(batch[0].key, [x.value for x in batch], is_wanted)
            delivery = list(zip(batch, results, strict=True))
        except Exception as error:
            end_time = time.monotonic()
            if len(batch) == 1:
                with contextlib.suppress(InvalidStateError):  # nobody waits
                    batch[0].future.set_exception(error)
            for row in batch:
                if not row.future.done():
                    self._run_batch([row])
            return end_time
        end_time = time.monotonic()
        for row, result in delivery:
            with contextlib.suppress(InvalidStateError):
                row.future.set_result(result)
        return end_time
