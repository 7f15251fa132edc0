"""Divides the encoding into tasks, each with the pairs of one part of a split.

The parts depend on the sources alone, so that a later run, with other machines,
continues where an earlier one stopped. A part that a task has begun continues from its
saved state, wherever the task is repeated.
"""

import dataclasses
import itertools
from collections.abc import Collection, Mapping
from pathlib import Path

from t2t_keras.data.count_pairs import Counts, read_positions
from t2t_keras.data.data_plan import DataPlan
from t2t_keras.data.encode_splits import SplitShard, encode_splits, split_parts
from t2t_keras.data.indexed_source import IndexedSource
from t2t_keras.data.locks import lock
from t2t_keras.data.progress import progress
from t2t_keras.data.sides import Side
from t2t_keras.data.tasks import TaskRunner
from t2t_keras.problem import Problem, Split

_PAIRS = 100_000  # of a part, unless there are too many of them
_MAX_PARTS = 256  # of a split: each has a spill file for each shard


@dataclasses.dataclass(frozen=True)
class _EncodingTask:
    """A part, and what it is made from."""

    problem: Problem
    part: SplitShard
    vocabularies: Mapping[Side, Path]


def indexed_problem(plan: DataPlan, counts: Counts) -> Problem:
    """Returns the problem, with sources of which any part can be read."""
    positions = read_positions(plan.directory)
    sources = dict(plan.problem.sources)
    for split in plan.splits:
        sources[split] = IndexedSource(
            sources[split], counts[split], positions.get(split, {})
        )
    return plan.problem.replace(sources=sources)


def task_parts(plan: DataPlan, counts: Counts) -> dict[Split, list[SplitShard]]:
    """Returns the parts of each split, in order."""
    positions = read_positions(plan.directory)
    by_split = {}
    for split in plan.splits:
        total = sum(counts[split].values())
        size = max(_PAIRS, -(-total // _MAX_PARTS))
        ranges = divide(counts[split], positions.get(split, {}), size)
        directories = {}
        for pairs in ranges:
            directory = plan.directory / f"pairs-{pairs.start}-{pairs.stop}"
            directories[directory] = pairs
        by_split[split] = split_parts(plan, counts, split, directories)
    return by_split


def divide(
    counts: Mapping[str, int], divisible: Collection[str], size: int
) -> list[range]:
    """Divides the pairs of a split into ranges of about the same size.

    Args:
        counts: the number of pairs of each corpus.
        divisible: the corpora that can be read from the middle. Each of the others is
            within one range.
        size: the number of pairs of a range, except in a corpus that is larger.
    """
    cuts = [0]
    start = 0  # of the corpus
    for name, count in counts.items():
        stop = start + count
        if name in divisible:
            while stop - cuts[-1] > size:
                cuts.append(cuts[-1] + size)
        else:
            if count >= size and start > cuts[-1]:
                cuts.append(start)
            if stop - cuts[-1] >= size:
                cuts.append(stop)
        start = stop
    if cuts[-1] < start:
        cuts.append(start)
    return [range(*pair) for pair in itertools.pairwise(cuts)]


def encode_in_tasks(plan: DataPlan, counts: Counts, runner: TaskRunner) -> None:
    """Encodes the parts that are not encoded yet.

    Args:
        plan: what is made.
        counts: the number of pairs by split and corpus.
        runner: runs the tasks.

    Raises:
        UserError: a source has changed since its pairs were counted.
    """
    finished = plan.directory / "encoded"
    if finished.exists():
        return
    parts = list(itertools.chain(*task_parts(plan, counts).values()))
    problem = indexed_problem(plan, counts)
    tasks = [_EncodingTask(problem, part, plan.vocabularies) for part in parts]
    total = sum(len(part.pairs) for part in parts)
    with progress("encoding", "pairs", total) as advance:
        for part, _ in zip(parts, runner(_encode, tasks), strict=True):
            advance(len(part.pairs))
    finished.touch()


def _encode(task: _EncodingTask) -> None:
    """Encodes a part, or what is left of it."""
    directory = task.part.state_path.parent
    # A task that was given up, with its machine or its program, may still be at work.
    with lock(directory / "lock", refusal=None):
        if _is_cut_off(task.part):
            task.part.state_path.unlink()
        encode_splits(task.problem, [task.part], task.vocabularies, workers=1)


def _is_cut_off(part: SplitShard) -> bool:
    """Returns whether a machine died before all that it had saved was on the disk."""
    sizes = part.load_state().sizes or []
    for path, size in zip([*part.spills, part.hashes], sizes, strict=False):
        if not path.exists() or path.stat().st_size < size:
            return True
    return False
