"""Dynamic batching: what waits is run together, in one thread that owns the model."""

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from t2t_keras.option import check, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of the server; each is a flag of `t2t serve`."""

    max_body_bytes: int = option(1 << 20, "the largest request body", least=1)
    max_characters: int = option(5000, "the most characters in a sentence", least=1)
    max_beam_size: int = option(
        32,
        "the largest beam size and number of outputs that a request may ask for",
        least=1,
    )
    max_queue: int = option(1024, "the most sentences that wait for a model", least=1)
    timeout_seconds: float = option(
        30.0, "the time in which a request is answered", above=0
    )
    max_batch_sentences: int = option(
        64, "the most sentences that are run together", least=1
    )
    batch_milliseconds: float = option(
        5.0, "how long a model that is idle waits for more sentences", least=0
    )

    def __post_init__(self) -> None:
        check(Limits, vars(self))


class Overloaded(Exception):
    """The queue is full, or the server is shutting down."""


class _Item:
    """A value that waits for its result.

    Attributes:
        key: what values have in common that are run together.
        value: the value.
        future: receives the result; it is done early if nobody waits for it any more.
        arrived: the time of arrival, by `time.monotonic`.
    """

    __slots__ = ("arrived", "future", "key", "value")

    def __init__(self, key: Hashable, value: Any) -> None:
        self.key = key
        self.value = value
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.arrived = time.monotonic()


class Batcher:
    """A queue of values, and a thread that runs them in batches.

    The thread takes the values that wait, up to `max_batch_sentences` with the key of
    the oldest one. If the oldest one arrived less than `batch_milliseconds` ago, the
    thread waits for others until then.

    Args:
        run: called in the thread with a key and values, for which it returns results.
        limits: the limits.
        observe: called in the thread after each batch, with its size and seconds.
    """

    def __init__(
        self,
        run: Callable[[Any, list[Any]], Sequence[Any]],
        limits: Limits,
        observe: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self._run = run
        self._limits = limits
        self._observe = observe
        self._waiting: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Returns the number of values that wait."""
        return len(self._waiting)

    async def submit(self, key: Hashable, values: Sequence[Any]) -> list[Any]:
        """Returns the results of values, which are run with others of the same key.

        If the caller is cancelled, values that still wait are not run.

        Raises:
            Overloaded: the queue is full, or the batcher is closed.
            Exception: what `run` raised for one of the values alone.
        """
        items = [_Item(key, value) for value in values]
        with self._changed:
            if self._is_closed:
                raise Overloaded("the server is shutting down")
            if len(self._waiting) + len(items) > self._limits.max_queue:
                self._waiting = deque(x for x in self._waiting if not x.future.done())
            if len(self._waiting) + len(items) > self._limits.max_queue:
                raise Overloaded("the queue is full; try again later")
            self._waiting.extend(items)
            self._changed.notify()
        try:
            return await asyncio.gather(*(item.future for item in items))
        finally:  # after an error or cancellation; otherwise all are done
            for item in items:
                item.future.cancel()

    def stop(self) -> None:
        """Refuses further values; those that wait are still run."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def close(self) -> None:
        """Refuses further values, and returns when the others have been run."""
        self.stop()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            start = time.monotonic()
            self._run_batch(batch)
            self._observe(len(batch), time.monotonic() - start)

    def _next_batch(self) -> list[_Item]:
        """Waits for values and takes a batch; it is empty when all is done."""
        most = self._limits.max_batch_sentences
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return []
                age = time.monotonic() - self._waiting[0].arrived
                self._changed.wait_for(
                    lambda: len(self._waiting) >= most or self._is_closed,
                    max(self._limits.batch_milliseconds / 1000 - age, 0),
                )
                wanted = [item for item in self._waiting if not item.future.done()]
                batch = [item for item in wanted if item.key == wanted[0].key][:most]
                taken = set(map(id, batch))
                self._waiting = deque(x for x in wanted if id(x) not in taken)
                if batch:
                    return batch

    def _run_batch(self, batch: list[_Item]) -> None:
        """Runs a batch; if that fails, each value alone, so that others succeed."""
        try:
            results = self._run(batch[0].key, [item.value for item in batch])
            delivery = list(zip(batch, results, strict=True))
        except Exception as error:
            if len(batch) == 1:
                _deliver(batch[0], error)
                return
            for item in batch:
                if not item.future.done():
                    self._run_batch([item])
            return
        for item, result in delivery:
            _deliver(item, result)


def _deliver(item: _Item, result: Any) -> None:
    """Passes a result, or an exception, to the event loop that waits for it."""

    def set_result() -> None:
        if item.future.done():
            return
        if isinstance(result, Exception):
            item.future.set_exception(result)
        else:
            item.future.set_result(result)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        item.future.get_loop().call_soon_threadsafe(set_result)
