"""Dynamic batching: requests that wait are run together, the cheapest ones first."""

import asyncio
import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from t2t_keras.option import check, option

# After this time without a batch, a thread is not busy, and expects no more values.
_IDLE_SECONDS = 0.1
# The delay in the queue of a request of `max_work`, as a fraction of the time limit.
_DELAY = 1 / 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of the server, for the flag `--limits`."""

    max_body_bytes: int = option(1 << 20, "the largest request body", least=1)
    max_characters: int = option(5000, "the most characters in a sentence", least=1)
    max_phrase_characters: int = option(
        1000, "the most characters in the phrases of a sentence", least=0
    )
    max_beam_size: int = option(32, "the largest beam size of a request", least=1)
    max_work: int = option(
        1_000_000, "the most work of a request; see `Service.work`", least=1
    )
    max_batch_work: int = option(
        16_000, "the most work of a batch of expensive requests", least=1
    )
    max_batch_sentences: int = option(64, "the most sentences of a batch", least=1)
    max_queue: int = option(1024, "the most sentences that wait for a model", least=1)
    batch_milliseconds: float = option(
        5.0, "how long an idle thread waits for its share of the sentences", least=0
    )
    timeout_seconds: float = option(
        30.0, "the time in which a request is answered", above=0
    )

    def __post_init__(self) -> None:
        check(Limits, vars(self))


class Overloaded(Exception):
    """The queue is full, or the server is loading or shutting down."""


@dataclasses.dataclass(eq=False, slots=True)
class _Item:
    """A value that waits for its result.

    Attributes:
        key: the same for values that may be run together.
        value: the value.
        work: the work it takes.
        arrived: the time of arrival, by `time.monotonic`.
        due: its place in the queue.
        future: receives the result; it is done early if nobody waits for it any more.
    """

    key: Hashable
    value: Any
    work: int
    arrived: float
    due: float
    future: Future[Any]


class Batcher:
    """A queue of values, and threads that run them in batches.

    A request's place in the queue is its time of arrival plus a delay in proportion to
    its work. So cheap requests overtake expensive ones, but none waits forever. A
    thread takes the first value and others with the same key, up to the limits of a
    batch. So the values of an expensive request are run in several batches. Values that
    nobody waits for any more are not run.

    Batches are largest if each thread takes its share of the values in the system:
    those that wait, those that run, and those of the thread's last batch, whose clients
    may ask again. An idle thread waits until its share is there, for at most
    `batch_milliseconds`, and takes no more than its share. A single client that sends
    one value at a time does not wait.

    Args:
        run: called in the thread with a key, values, and a function that returns
            whether anybody still waits for them; returns their results.
        limits: the limits.
        observe: called in the thread after each batch, with its size and seconds.
        first: another batcher, to which this one leaves two thirds of the time when
            both are busy. None: this one has priority, and the work of its batches is
            not limited.
        threads: the number of batches that run at the same time.
    """

    def __init__(
        self,
        run: Callable[[Any, list[Any], Callable[[], bool]], Sequence[Any]],
        limits: Limits,
        observe: Callable[[int, float], None] = lambda size, seconds: None,
        first: "Batcher | None" = None,
        threads: int = 1,
    ) -> None:
        self._run = run
        self._limits = limits
        self._observe = observe
        self._first = first
        self._running = 0  # values in batches
        self._busy_until = 0.0
        self._waiting: list[_Item] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, daemon=True) for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Returns the number of values that wait."""
        return len(self._waiting)

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
        share = sum(works) / self._limits.max_work
        now = time.monotonic()
        due = now + _DELAY * self._limits.timeout_seconds * share
        items = [
            _Item(key, value, work, now, due, Future())
            for key, value, work in zip(keys, values, works, strict=True)
        ]
        with self._changed:
            if self._is_closed:
                raise Overloaded("the server is shutting down")
            if len(self._waiting) + len(items) > self._limits.max_queue:
                self._waiting = [x for x in self._waiting if not x.future.done()]
            if len(self._waiting) + len(items) > self._limits.max_queue:
                raise Overloaded("the queue is full; try again later")
            self._waiting = sorted([*self._waiting, *items], key=lambda item: item.due)
            self._changed.notify_all()
        try:
            return await asyncio.gather(*(asyncio.wrap_future(x.future) for x in items))
        finally:  # after an error or cancellation; otherwise all are done
            for item in items:
                item.future.cancel()

    def close(self, wait: bool = True) -> None:
        """Refuses further values; those that wait are still run.

        Args:
            wait: whether to return when they have been run.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        batch: list[_Item] = []
        end = -math.inf
        while batch := self._next_batch(len(batch), end):
            start = time.monotonic()
            end = self._run_batch(batch)
            now = time.monotonic()
            with self._changed:
                self._running -= len(batch)
                self._busy_until = math.inf if self._running else now + _IDLE_SECONDS
            self._observe(len(batch), now - start)
            rest = now + 2 * (now - start)
            while self._first is not None and not self._is_closed:
                if time.monotonic() > min(rest, self._first._busy_until):
                    break
                time.sleep(_IDLE_SECONDS / 4)

    def _next_batch(self, answered: int, end: float) -> list[_Item]:
        """Waits for values and takes a batch; an empty one means that all is done.

        Args:
            answered: the number of values in the thread's last batch.
            end: when that batch ended.
        """
        most_work = math.inf if self._first is None else self._limits.max_batch_work
        batch: list[_Item] = []
        with self._changed:
            while not batch:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    break
                share = self._wait_for_share(answered, end)
                self._waiting = [x for x in self._waiting if not x.future.done()]
                work = 0
                for item in self._waiting:
                    fits = len(batch) < share and work + item.work <= most_work
                    if not batch or (fits and item.key == batch[0].key):
                        batch.append(item)
                        work += item.work
                taken = set(batch)
                self._waiting = [x for x in self._waiting if x not in taken]
            if batch:
                self._running += len(batch)
                self._busy_until = math.inf
        return batch

    def _wait_for_share(self, answered: int, end: float) -> int:
        """Waits for the thread's share of the values; returns how many these are."""
        now = time.monotonic()
        early = sum(item.arrived < end for item in self._waiting)
        expected = answered if now < end + _IDLE_SECONDS else 0
        known = self._running + early + max(expected, len(self._waiting) - early)
        share = math.ceil(known / len(self._threads))
        share = min(share, self._limits.max_batch_sentences)
        since = max(self._waiting[0].arrived, end)
        self._changed.wait_for(
            lambda: len(self._waiting) >= share or self._is_closed,
            max(since + self._limits.batch_milliseconds / 1000 - now, 0),
        )
        return share

    def _run_batch(self, batch: list[_Item]) -> float:
        """Runs a batch; if that fails, each value alone, so that others succeed.

        Returns:
            The time before the first answer: clients may ask again before the last one.
        """

        def is_wanted() -> bool:
            return not all(item.future.done() for item in batch)

        try:
            results = self._run(batch[0].key, [x.value for x in batch], is_wanted)
            delivery = list(zip(batch, results, strict=True))
        except Exception as error:
            end = time.monotonic()
            if len(batch) == 1:
                with contextlib.suppress(InvalidStateError):  # nobody waits
                    batch[0].future.set_exception(error)
            for item in batch:
                if not item.future.done():
                    self._run_batch([item])
            return end
        end = time.monotonic()
        for item, result in delivery:
            with contextlib.suppress(InvalidStateError):
                item.future.set_result(result)
        return end
