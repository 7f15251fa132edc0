"""Dynamic batching: threads run the waiting rows of a `FairQueue` together."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError

from .fair_queue import IDLE_SECONDS, FairQueue, Row
from .limits import Limits
from .rows import Key, Outputs, Texts


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
