"""Batches: which rows run together, in which order, and how long threads wait."""

import asyncio
import math
import threading
import types

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
from t2t_keras.plugins.server.queue import Batcher, Overloaded
from t2t_keras.plugins.server.requests import Limits


def run_batches(limits, cheap_work=math.inf):
    """Runs values in a batcher; returns the batches, in the order of running."""
    batches = []
    runs, may_run = threading.Event(), threading.Event()

    def work(key, values, is_wanted):
        runs.set()
        may_run.wait(60)
        batches.append((key, values))
        return [value * 10 for value in values]

    async def talk():
        batcher = Batcher(work, limits, cheap_work=cheap_work)
        begun = asyncio.create_task(batcher.submit("z", [0], [1]))
        await asyncio.to_thread(runs.wait, 60)
        tasks = [
            asyncio.create_task(batcher.submit(keys, values, [options] * len(values)))
            for keys, values, options in (
                *(("", [], 1), ("aa", [1, 2], 1), ("b", [3], 1), ("aa", [4, 5], 2)),
                *(("aa", [6, 7], 500_000), ("a", [8], 3)),
            )
        ]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="full"):
            await batcher.submit("a", [9], [1])
        may_run.set()
        assert await begun == [0]
        answers = await asyncio.gather(*tasks)
        await asyncio.to_thread(batcher.close)
        with pytest.raises(Overloaded, match="shutting down"):
            await batcher.submit("a", [1], [1])
        assert answers == [[], [10, 20], [30], [40, 50], [60, 70], [80]]

    asyncio.run(talk())
    return [batch for batch in batches if batch[0] != "z"]


def test_the_order_and_the_size_of_batches(monkeypatch):
    # All requests arrive at one time, however busy the machine is.
    clock = types.SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("t2t_keras.plugins.server.queue.time", clock)
    limits = Limits(max_batch_sentences=3, batch_milliseconds=20, max_queue=8)
    # Of equal keys, the cheapest first; 6 and 7 are more expensive than 8.
    assert run_batches(limits) == [
        *[("a", [1, 2, 4]), ("b", [3]), ("a", [8, 5, 6]), ("a", [7])]
    ]
    # A batch of expensive rows has a limit of work, and a thread.
    batches = run_batches(limits, cheap_work=10)
    apart = [("a", [6]), ("a", [7])]
    assert [batch for batch in batches if batch in apart] == apart
    assert [batch for batch in batches if batch not in apart] == [
        *[("a", [1, 2, 4]), ("b", [3]), ("a", [8, 5])]
    ]


def test_idle_threads_share_the_values():
    barrier = threading.Barrier(2)

    def size(key, values, is_wanted):
        barrier.wait(60)
        return [len(values)] * len(values)

    batcher = Batcher(size, Limits(), threads=2)
    assert asyncio.run(batcher.submit("aaaa", range(4), [1] * 4)) == [2] * 4
    batcher.close()


def test_a_thread_waits_for_the_clients_of_its_last_batch(monkeypatch):
    monkeypatch.setattr("t2t_keras.plugins.server.queue.IDLE_SECONDS", 50)
    sizes = []

    def size(key, values, is_wanted):
        sizes.append(len(values))
        return values

    async def talk():
        batcher = Batcher(size, Limits(batch_milliseconds=50_000))
        for count in (1, 1, 4):  # they are known, so it does not wait for others
            await batcher.submit("a" * count, range(count), [1] * count)
        tasks = []
        for count in (1, 1, 2):
            call = batcher.submit("a" * count, range(count), [1] * count)
            tasks.append(asyncio.create_task(call))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        batcher.close(wait=False)

    asyncio.run(asyncio.wait_for(talk(), 25))
    assert sizes == [1, 1, 4, 4]
