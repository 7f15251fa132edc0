"""Divides the encoding into tasks, each with the pairs of one part of a split.

The parts depend on the sources alone, so that a later run, with other machines,
continues where an earlier one stopped. A part that a task has begun continues from its
saved state, wherever the task is repeated.
"""

import dataclasses
import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from t2t_keras.console import progress
from t2t_keras.data.count_pairs import read_positions
from t2t_keras.data.encode_splits import (
    EncodingState,
    SplitPart,
    encode_splits,
    split_parts,
)
from t2t_keras.data.indexed_source import IndexedSource
from t2t_keras.data.manifest import Counts, DataPlan
from t2t_keras.data.record_index import shard_name
from t2t_keras.data.tasks import TaskRunner
from t2t_keras.data.write_shards import damaged_spill
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import lock
from t2t_keras.problem import Problem, Side, Split

_PAIRS = 100_000  # of a part, unless there are too many of them
_MAX_PARTS = 256  # of a split: each has a spill file for each shard
_ROUNDS = 3  # in which parts are encoded that are not on the disk


@dataclasses.dataclass(frozen=True)
class _EncodingTask:
    """A part, and what it is made from."""

    problem: Problem
    part: SplitPart
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


def task_parts(plan: DataPlan, counts: Counts) -> dict[Split, list[SplitPart]]:
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
    """Encodes the parts that are not completely on the disk.

    A machine may be lost before all that it has written is on the shared disk.

    Args:
        plan: what is made.
        counts: the number of pairs by split and corpus.
        runner: runs the tasks.

    Raises:
        UserError: a source has changed since its pairs were counted, or the disk
            loses what is written.
    """
    parts = list(itertools.chain(*task_parts(plan, counts).values()))
    problem = indexed_problem(plan, counts)
    total = sum(len(part.pairs) for part in parts)
    lacking = _lacking(plan, parts, runner)
    for _ in range(_ROUNDS):
        if not lacking:
            return
        tasks = [_EncodingTask(problem, part, plan.vocabularies) for part in lacking]
        done = total - sum(len(part.pairs) for part in lacking)
        with progress("encoding", "pairs", total, done) as advance:
            for part, _ in zip(lacking, runner(_encode, tasks), strict=True):
                advance(len(part.pairs))
        lacking = _lacking(plan, lacking, runner)
    if lacking:
        raise damaged_spill(lacking[0].state_path)


@dataclasses.dataclass(frozen=True)
class _LookingTask:
    """A part, and the finished shards, for which it needs no spill files."""

    part: SplitPart
    written: frozenset[int]


def _lacking(
    plan: DataPlan, parts: Sequence[SplitPart], runner: TaskRunner
) -> list[SplitPart]:
    """Returns the parts that are not completely on the disk."""
    names = frozenset(os.listdir(plan.done))
    tasks = []
    for part in parts:
        written = set()
        count = part.config.num_shards
        for index in range(count):
            if shard_name(plan.problem.data_name, part.split, index, count) in names:
                written.add(index)
        tasks.append(_LookingTask(part, frozenset(written)))
    results = runner(_is_whole, tasks)
    return [part for part, is_whole in zip(parts, results, strict=True) if not is_whole]


def _is_whole(task: _LookingTask) -> bool:
    """Returns whether a part is encoded, and its files have their sizes."""
    state = _readable_state(task.part)
    if state is None or state.pairs != len(task.part.pairs):
        return False
    paths = [*task.part.spills, task.part.hashes]
    sizes = state.sizes or []
    if len(sizes) != len(paths):
        return False
    for index, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        if index not in task.written and _is_short(path, size):
            return False
    return True


def _readable_state(part: SplitPart) -> EncodingState | None:
    """Returns the state of a part; None: its file is damaged."""
    try:
        return part.load_state()
    except UserError:
        return None


def _is_short(path: Path, size: int) -> bool:
    return not path.exists() or path.stat().st_size < size


def _encode(task: _EncodingTask) -> None:
    """Encodes a part, or what is left of it."""
    directory = task.part.state_path.parent
    # A task that was given up, with its machine or its program, may still be at work.
    with lock(directory / "lock", refusal=None) as held:
        if _is_cut_off(task.part):
            task.part.state_path.unlink()
        encode_splits(task.problem, [task.part], task.vocabularies, 1, held)


def _is_cut_off(part: SplitPart) -> bool:
    """Returns whether a machine died before all that it had saved was on the disk."""
    state = _readable_state(part)
    if state is None:
        return True
    paths = [*part.spills, part.hashes]
    sizes = state.sizes or []
    return any(map(_is_short, paths, sizes))
