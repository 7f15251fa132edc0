"""The queue of the server: which rows run next, and which requests are refused.

Clients and engine are simulated, without threads, with a simulated clock.
"""

import collections
import heapq
import itertools
import random

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")

from t2t_keras.plugins.server.queue import FairQueue, Overloaded
from t2t_keras.plugins.server.requests import Limits

CHEAP = 1600  # the most work of a cheap row: beam 4
SHORT = 4 * (49 + 64)
LONG = 4 * (2000 + 64)
# The works of the rows of a request, by class.
SIZES = {
    "1 short": [SHORT],
    "5 short": [SHORT] * 5,
    "30 short": [SHORT] * 30,
    "500 short": [SHORT] * 500,
    "1 long": [LONG],
    "10 long": [LONG] * 10,
}


class Simulation:
    """Clients that send their next request some time after the answer.

    Args:
        classes: how often each class of `SIZES` is asked for.
        clients: the number of clients.
        speed: the work per second of both cores together.
        threads: as for `FairQueue`.

    Attributes:
        counts: for each class, how many requests were answered, refused, and late.
    """

    def __init__(self, classes, clients, speed, threads=2):
        self.classes = classes
        self.speed = speed
        self.threads = threads
        self.limits = Limits()
        self.queue = FairQueue(self.limits, CHEAP, threads)
        self.counts = {name: collections.Counter() for name in classes}
        self.seconds = collections.defaultdict(list)
        self.longest_queue = 0
        self.busy = set()
        self.random = random.Random(1)
        self.events = []
        self.numbers = itertools.count()
        for _ in range(clients):
            self.plan(self.random.random(), self.ask)
        for tick in range(40 * 60):  # threads look at the queue now and then
            self.plan(tick / 40, lambda time: None)

    def plan(self, time, event, *args):
        heapq.heappush(self.events, (time, next(self.numbers), event, args))

    def run(self):
        while self.events:
            time, _, event, args = heapq.heappop(self.events)
            event(time, *args)
            self.longest_queue = max(self.longest_queue, len(self.queue))
            for thread in {*range(self.threads + 1)} - self.busy:
                self.start_batch(thread, time)
        assert not len(self.queue)
        return self

    def ask(self, time):
        if time > 30:
            return
        name, *_ = self.random.choices([*self.classes], [*self.classes.values()])
        works = SIZES[name]
        request = {"class": name, "missing": len(works), "start": time}
        try:
            rows = self.queue.add("k" * len(works), [request] * len(works), works, time)
        except Overloaded:
            self.end(time, request, "refused")
            return
        self.plan(time + self.limits.timeout_seconds, self.leave, request, rows)

    def end(self, time, request, outcome):
        request["outcome"] = outcome
        self.counts[request["class"]][outcome] += 1
        self.seconds[request["class"], outcome].append(time - request["start"])
        self.plan(time + self.random.random(), self.ask)

    def leave(self, time, request, rows):
        if "outcome" not in request:
            self.end(time, request, "late")
            for row in rows:
                row.future.cancel()

    def start_batch(self, thread, time):
        if lane := self.queue.lane(thread, time):
            count = self.limits.max_batch_sentences
            if lane is self.queue.cheap:
                num_requests = len(lane) + self.queue.running
                count = min(count, -(-num_requests // self.threads))
            if batch := self.queue.take(lane, count):
                self.busy.add(thread)
                share = self.speed / max(len(self.busy), 2)
                seconds = 0.004 + sum(row.work for row in batch) / share
                self.plan(time + seconds, self.end_batch, thread, batch, time)

    def end_batch(self, time, thread, batch, start):
        self.busy.remove(thread)
        self.queue.finish(thread, batch, start, time)
        for row in batch:
            request = row.value
            request["missing"] -= 1
            if not request["missing"] and "outcome" not in request:
                self.end(time, request, "answered")

    def rates(self):
        """The share of the requests of each class that were answered."""
        return {x: n["answered"] / n.total() for x, n in self.counts.items()}


MIXED = {"1 short": 75, "5 short": 15, "30 short": 5, "1 long": 5}


@pytest.mark.parametrize(
    ("classes", "clients", "speed", "threads"),
    [
        (MIXED, 300, 200_000, 2),  # all that wait fits into the queue
        (MIXED, 600, 100_000, 2),  # the queue has too many sentences
        (MIXED, 600, 100_000, 1),
        (MIXED, 600, 25_000, 2),  # the engine would take too long for them
        ({"1 short": 60, "5 short": 20, "30 short": 20}, 600, 100_000, 2),
        ({"1 short": 30, "1 long": 50, "10 long": 20}, 300, 200_000, 2),
        ({"1 short": 80, "500 short": 20}, 300, 400_000, 2),
    ],
)
def test_no_class_has_half_the_answer_rate_of_another(classes, clients, speed, threads):
    answers = Simulation(classes, clients, speed, threads).run()
    rates = answers.rates()
    assert min(rates.values()) > 0.5 * max(rates.values()), (rates, answers.counts)
    # Almost nothing is accepted that cannot be answered in time.
    late = sum(count["late"] for count in answers.counts.values())
    answered = sum(count["answered"] for count in answers.counts.values())
    assert late <= 0.05 * answered
    assert answers.longest_queue < 1024 + max(len(SIZES[name]) for name in classes)


def test_cheap_requests_are_answered_first():
    answers = Simulation(MIXED, 300, 200_000).run()
    medians = [
        sorted(answers.seconds[name, "answered"])[answers.counts[name]["answered"] // 2]
        for name in ("1 short", "5 short", "30 short")
    ]
    assert medians == sorted(medians)
    assert medians[0] < 0.6 * medians[2]


def add(queue, works, time=0.0):
    return queue.add("k" * len(works), works, works, time)


def take(queue, thread, time, count=64):
    lane = queue.lane(thread, time)
    batch = queue.take(lane, count) if lane else []
    return [row.value for row in batch], batch


def test_the_refusal_does_not_depend_on_the_size_of_a_request():
    for size in (1, 20):
        queue = FairQueue(Limits(max_queue=20), CHEAP, 1)
        add(queue, [1] * 19)
        add(queue, [1] * size)
        for other_size in (1, 20):
            with pytest.raises(Overloaded, match="full"):
                add(queue, [1] * other_size)


def test_abandoned_rows_leave_room():
    queue = FairQueue(Limits(max_queue=20), CHEAP, 1)
    for row in add(queue, [1] * 19 + [9000]):
        row.future.cancel()
    add(queue, [2])
    assert len(queue) == 1
    assert take(queue, 0, 0.0)[0] == [2]


def test_a_slow_engine_has_a_short_queue():
    limits = Limits(timeout_seconds=30, max_batch_sentences=8)
    queue = FairQueue(limits, CHEAP, 1)
    time = 0.0
    add(queue, [100] * 8)
    for _ in range(3):  # 100 per second
        add(queue, [100] * 8, time)
        _, batch = take(queue, 0, time, 8)
        queue.finish(0, batch, time, time + 8)
        time += 8
    while len(queue) < 16:  # a batch for each thread may always wait
        add(queue, [100], time)
    with pytest.raises(Overloaded):  # these take longer than 10 seconds
        add(queue, [100], time)
    # While rows do not always wait, the speed depends on the clients.
    queue = FairQueue(limits, CHEAP, 1)
    for time in range(5):
        add(queue, [100], time)
        _, batch = take(queue, 0, time)
        queue.finish(0, batch, time, time + 0.9)
    for _ in range(20):
        add(queue, [100], time)


def test_the_rows_of_a_large_request_do_not_block_the_queue():
    queue = FairQueue(Limits(), CHEAP, 1)
    add(queue, [250] * 1000, 0.0)
    # Row n is due after 30 sqrt(n * 250 / 1,000,000) seconds, and at most 10.
    for time, earlier in ((0.5, 1), (1.0, 4), (2.0, 18), (9.97, 1000)):
        (row,) = add(queue, [1], time)
        assert queue.cheap.index(row) == earlier
        queue.cheap.remove(row)


def test_expensive_rows_leave_most_of_the_time_to_cheap_ones():
    queue = FairQueue(Limits(), CHEAP, 2)
    add(queue, [LONG] * 3, 0.0)
    add(queue, [SHORT], 0.0)
    assert take(queue, 0, 0.0)[0] == [SHORT]
    assert take(queue, 1, 0.0)[0] == []  # it stays free for cheap rows
    batch, rows = take(queue, 2, 0.0)
    assert batch == [LONG]  # two are more than `max_batch_work`
    queue.finish(2, rows, 0.0, 0.1)
    assert take(queue, 2, 0.2)[0] == []
    assert take(queue, 2, 0.31)[0] == [LONG]
    # When they are late, every thread runs them; the third is due after 4.7 seconds.
    assert take(queue, 0, 7.6)[0] == []
    assert take(queue, 0, 7.8)[0] == [LONG]


def test_expensive_rows_alone_use_all_threads_but_one():
    queue = FairQueue(Limits(), CHEAP, 2)
    add(queue, [LONG] * 4, 0.0)
    assert [take(queue, thread, 0.0)[0] for thread in (0, 1, 2)] == [[], [LONG], [LONG]]
    add(queue, [SHORT], 0.0)
    assert take(queue, 0, 0.0)[0] == [SHORT]
    queue.is_closed = True
    assert take(queue, 0, 0.0)[0] == [LONG]


def test_a_batch_has_equal_keys():
    queue = FairQueue(Limits(), CHEAP, 1)
    queue.add("abab", [1, 2, 3, 4], [1] * 4, 0.0)
    assert take(queue, 0, 0.0)[0] == [1, 3]
    assert take(queue, 0, 0.0)[0] == [2, 4]
