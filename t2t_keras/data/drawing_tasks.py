"""Draws the sample from which vocabularies are trained, in tasks."""

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

from t2t_keras.data.encoding_tasks import indexed_problem, task_parts
from t2t_keras.data.manifest import Counts, DataPlan
from t2t_keras.data.tasks import TaskRunner
from t2t_keras.data.vocabulary import draw
from t2t_keras.problem import Pair, Problem


@dataclasses.dataclass(frozen=True)
class _DrawingTask:
    """The indices of the training pairs that are read by one task, ascending."""

    problem: Problem
    indices: list[int]


def draw_training_pairs(
    plan: DataPlan, counts: Counts, runner: TaskRunner, sizes: Sequence[int]
) -> Iterator[Pair]:
    """Draws the pairs that `train_vocabulary.draw` draws, in their order.

    Args:
        plan: what is made.
        counts: the number of pairs by split and corpus.
        runner: runs the tasks.
        sizes: the number of pairs to draw from each corpus.
    """
    totals = list(counts["train"].values())
    indices = list(draw(range(sum(totals)), totals, sizes, plan.config.seed))
    problem = indexed_problem(plan, counts)
    tasks = []
    for part in task_parts(plan, counts)["train"]:
        start = bisect.bisect_left(indices, part.pairs.start)
        stop = bisect.bisect_left(indices, part.pairs.stop)
        if start < stop:
            tasks.append(_DrawingTask(problem, indices[start:stop]))
    for pairs in runner(_read, tasks):
        yield from pairs


def _read(task: _DrawingTask) -> list[Pair]:
    start = task.indices[0]
    remaining = iter(task.indices)
    upcoming = next(remaining)
    drawn = []
    pairs = task.problem.pairs("train", start, task.indices[-1] + 1)
    for index, pair in enumerate(pairs, start):
        if index == upcoming:
            drawn.append(pair)
            upcoming = next(remaining, -1)
    return drawn
