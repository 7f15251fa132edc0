"""The stages of data generation, divided into tasks that run on other machines.

`survey` counts the pairs. The parts of a split depend only on the sources, so a later
run continues where an earlier one stopped, even on other machines. In the same way, a
repeated task continues a part that was begun.
"""

import bisect
import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from t2t_keras.checking import Count
from t2t_keras.console import progress
from t2t_keras.data.datagen import Stages, require_pairs, write_counts
from t2t_keras.data.encode_splits import (
    EncodingState,
    SplitPart,
    encode_splits,
    split_parts,
)
from t2t_keras.data.manifest import Counts, DataPlan, read_counts
from t2t_keras.data.mixture import corpora_of
from t2t_keras.data.record_index import shard_name
from t2t_keras.data.vocabulary import draw
from t2t_keras.data.write_shards import TaskMap, damaged_spill
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import Lock, lock
from t2t_keras.files.json_files import read_json, typed_value, write_json
from t2t_keras.problem import Pair, Problem, Side, Source, Split

from .survey import Position, read_pairs_from, survey

A = TypeVar("A")
R = TypeVar("R")

_PAIRS = 100_000  # of a part, unless there are too many of them
_MAX_PARTS = 256  # of a split: each has a spill file for each shard
_ROUNDS = 3  # in which parts are encoded that are not on the disk

# For each corpus whose files can be read from the middle, the positions in each file.
CorpusPositions = Mapping[str, list[list[Position]]]


class ClusterStages(Stages):
    """The work of data generation in tasks, with the same bytes as on one machine.

    The machines share the data directory and the files of the sources.

    Args:
        run: runs the tasks of a stage.
        workers: the number of tasks that run at the same time.
    """

    def __init__(self, run: TaskMap, workers: int) -> None:
        super().__init__(workers)
        self._run = run

    def map(self, task: Callable[[A], R], arguments: Sequence[A], /) -> Iterator[R]:
        """See `Stages.map`."""
        return self._run(task, arguments)

    def measure(self, problem: Problem) -> tuple[int, int]:
        """See `Stages.measure`."""
        pairs = 0
        characters = set[str]()
        for result in survey(corpora_of(problem.source("train")), self.map):
            pairs += result.pairs
            characters |= result.characters
        return pairs, len(characters)

    def count(self, plan: DataPlan) -> Counts:
        """See `Stages.count`; writes `positions.json` too, see `read_positions`."""
        counts = read_counts(plan.directory / "corpora.json")
        path = plan.directory / "positions.json"
        if path.exists() and counts.keys() >= set(plan.splits):
            return counts
        corpora = {}
        for split in plan.splits:
            for corpus in corpora_of(plan.problem.sources[split]):
                corpora[split, corpus.name] = corpus
        with progress("counting", "pairs") as advance:
            surveys = survey(list(corpora.values()), self.map)
            advance(sum(result.pairs for result in surveys))
        counts = {split: {} for split in plan.splits}
        left_out = {split: Counter[str]() for split in plan.splits}
        positions: dict[Split, dict[str, list[list[Position]]]] = {}
        for (split, name), result in zip(corpora, surveys, strict=True):
            require_pairs(result.pairs, split, name, result.dropped)
            counts[split][name] = result.pairs
            left_out[split] += Counter(result.dropped)
            if result.positions is not None:
                positions.setdefault(split, {})[name] = result.positions
        write_json(path, positions, with_checksum=True)
        write_counts(plan, counts, left_out)
        return counts

    def sample(
        self, plan: DataPlan, counts: Counts, sizes: Sequence[int]
    ) -> Iterator[Pair]:
        """See `Stages.sample`; draws the same pairs, in their order."""
        totals = list(counts["train"].values())
        indices = list(draw(range(sum(totals)), totals, sizes, plan.config.seed))
        problem = _indexed_problem(plan, counts)
        tasks = []
        for part in _parts(plan, counts)["train"]:
            start = bisect.bisect_left(indices, part.pairs.start)
            stop = bisect.bisect_left(indices, part.pairs.stop)
            if start < stop:
                tasks.append(_DrawingTask(problem, indices[start:stop]))
        for pairs in self.map(_read, tasks):
            yield from pairs

    def encode(
        self, plan: DataPlan, counts: Counts, directory_lock: Lock
    ) -> dict[Split, list[SplitPart]]:
        """See `Stages.encode`; encodes the parts that are not completely on the disk.

        A machine may be lost before all that it has written is on the shared disk.
        """
        by_split = _parts(plan, counts)
        problem = _indexed_problem(plan, counts)
        parts = list(itertools.chain(*by_split.values()))
        total = sum(len(part.pairs) for part in parts)
        lacking = self._lacking(plan, parts)
        for _ in range(_ROUNDS):
            if not lacking:
                return by_split
            tasks = []
            for part in lacking:
                tasks.append(_EncodingTask(problem, part, plan.vocabularies))
            done = total - sum(len(part.pairs) for part in lacking)
            with progress("encoding", "pairs", total, done) as advance:
                for part, _ in zip(lacking, self.map(_encode, tasks), strict=True):
                    advance(len(part.pairs))
            lacking = self._lacking(plan, lacking)
        if lacking:
            raise damaged_spill(lacking[0].state_path)
        return by_split

    def _lacking(self, plan: DataPlan, parts: Sequence[SplitPart]) -> list[SplitPart]:
        """Returns the parts that are not completely on the disk."""
        names = frozenset(os.listdir(plan.done))
        tasks = []
        for part in parts:
            written = set()
            count = part.config.num_shards
            for index in range(count):
                name = shard_name(plan.problem.data_name, part.split, index, count)
                if name in names:
                    written.add(index)
            tasks.append(_LookingTask(part, frozenset(written)))
        results = self.map(_is_whole, tasks)
        return [
            part for part, is_whole in zip(parts, results, strict=True) if not is_whole
        ]


def read_positions(directory: Path) -> dict[Split, dict[str, list[list[Position]]]]:
    """Returns where corpora can be read from, by split and corpus.

    Raises:
        UserError: the file is damaged.
    """
    path = directory / "positions.json"
    hint = dict[Split, dict[str, list[list[tuple[Count, Count]]]]]
    return typed_value(hint, read_json(path) or {}, "positions", path)


@dataclasses.dataclass(frozen=True)
class IndexedSource:
    """A source of which any part can be read, since its corpora are counted.

    Attributes:
        source: the source.
        counts: the number of pairs of each corpus, by name.
        positions: where the files of corpora can be read from. Corpora that are not in
            it are read from their beginning.
    """

    source: Source
    counts: Mapping[str, int]
    positions: CorpusPositions

    def __call__(self) -> Iterator[Pair]:
        """Yields all pairs."""
        return self.read_pairs(0)

    def read_pairs(self, start: int, stop: int | None = None) -> Iterator[Pair]:
        """Yields some of the pairs, without reading the corpora before them.

        Args:
            start: the index of the first pair.
            stop: the index after the last one; None: the end.
        """
        if stop is None:
            stop = sum(self.counts.values())
        corpus_start = 0
        for corpus in corpora_of(self.source):
            size = self.counts[corpus.name]
            index = max(start - corpus_start, 0)
            count = min(stop - corpus_start, size) - index
            if count > 0:
                positions = self.positions.get(corpus.name)
                pairs = read_pairs_from(corpus.source, index, positions)
                yield from corpus.tagged(itertools.islice(pairs, count))
            corpus_start += size


def _indexed_problem(plan: DataPlan, counts: Counts) -> Problem:
    """Returns the problem, with sources of which any part can be read."""
    positions = read_positions(plan.directory)
    sources = dict(plan.problem.sources)
    for split in plan.splits:
        sources[split] = IndexedSource(
            sources[split], counts[split], positions.get(split, {})
        )
    return plan.problem.replace(sources=sources)


def _parts(plan: DataPlan, counts: Counts) -> dict[Split, list[SplitPart]]:
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


@dataclasses.dataclass(frozen=True)
class _DrawingTask:
    """The indices of the training pairs that are read by one task, ascending."""

    problem: Problem
    indices: list[int]


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


@dataclasses.dataclass(frozen=True)
class _EncodingTask:
    """A part, and what it is made from."""

    problem: Problem
    part: SplitPart
    vocabularies: Mapping[Side, Path]


def _encode(task: _EncodingTask) -> None:
    """Encodes a part, or what is left of it."""
    directory = task.part.state_path.parent
    # A task that was given up, with its machine or its program, may still be at work.
    with lock(directory / "lock", refusal=None) as part_lock:
        if _is_cut_off(task.part):
            task.part.state_path.unlink()
        encode_splits(task.problem, [task.part], task.vocabularies, 1, part_lock)


def _is_cut_off(part: SplitPart) -> bool:
    """Returns whether a machine died before all that it had saved was on the disk."""
    state = _readable_state(part)
    if state is None:
        return True
    return any(map(_is_short, part.files, state.sizes))


@dataclasses.dataclass(frozen=True)
class _LookingTask:
    """A part, and the finished shards, for which it needs no spill files."""

    part: SplitPart
    written: frozenset[int]


def _is_whole(task: _LookingTask) -> bool:
    """Returns whether a part is encoded, and its files have their sizes."""
    state = _readable_state(task.part)
    if state is None or state.pairs != len(task.part.pairs):
        return False
    paths = task.part.files
    if len(state.sizes) != len(paths):
        return False
    for index, (path, size) in enumerate(zip(paths, state.sizes, strict=True)):
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
