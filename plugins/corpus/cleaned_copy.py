"""Cleaned copies of the sources of an inspection, as recipes say."""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_keras.console import progress
from t2t_keras.data.raw_texts import write_texts
from t2t_keras.files.atomic import open_lines
from t2t_keras.problem import Pair, Source

from .counted_pairs import counted
from .recipe import SplitRecipe, format_recipes
from .split_inspection import PairFault

RECIPE = "recipe.toml"


class CopiedSplit(NamedTuple):
    """The copy of a split.

    Attributes:
        source: the file of its sources.
        target: the file of its targets.
        pairs: number of pairs in it.
        dropped: number of pairs that were left out.
        repaired: number of pairs that were changed.
    """

    source: str
    target: str
    pairs: int
    dropped: int
    repaired: int


def write_copies(
    directory: Path,
    sources: Mapping[str, Source],
    faults: Mapping[str, Sequence[PairFault]],
    recipes: Mapping[str, SplitRecipe],
) -> dict[str, CopiedSplit]:
    """Writes cleaned copies of all splits, and last the recipe.

    Args:
        directory: the directory, which is made if there is none.
        sources: the sources of the splits.
        faults: the faults of each of them.
        recipes: the recipe of each of them.
    """
    directory.mkdir(parents=True, exist_ok=True)
    copies = {}
    for name, source in sources.items():
        copies[name] = _write_copy(directory, name, source, faults[name], recipes[name])
    with open_lines(directory / RECIPE) as file:
        file.write(format_recipes(recipes))
    return copies


def _write_copy(
    directory: Path,
    name: str,
    source: Source,
    faults: Sequence[PairFault],
    recipe: SplitRecipe,
) -> CopiedSplit:
    """Writes the cleaned copy of one split."""
    stem = name.replace(" ", ".").replace("/", "_")
    paths = [directory / f"{stem}.{side}" for side in ("source", "target")]
    counts = Counter[str]()
    with progress(f"copying {name}", "pairs") as advance:
        pairs = _with_faults(counted(source(), advance), faults)
        num_written = write_texts(paths, _copied(pairs, recipe, counts))
    source_path, target_path = map(str, paths)
    return CopiedSplit(
        source_path, target_path, num_written, counts["dropped"], counts["repaired"]
    )


def _copied(
    pairs: Iterable[tuple[Pair, list[str]]], recipe: SplitRecipe, counts: Counter[str]
) -> Iterator[Pair]:
    """Yields what becomes of pairs with faults; counts the "dropped" and "repaired"."""
    for line, (pair, names) in enumerate(pairs, start=1):
        copied = recipe.apply(line, pair, names)
        if copied is None:
            counts["dropped"] += 1
        else:
            counts["repaired"] += copied != tuple(pair)
            yield copied


def _with_faults(
    pairs: Iterable[Pair], faults: Sequence[PairFault]
) -> Iterator[tuple[Pair, list[str]]]:
    """Yields each pair with the names of its faults."""
    rows = []
    for fault in faults:
        names = itertools.repeat(fault.finding.kind, len(fault.indices))
        rows.append(zip(fault.indices.tolist(), names, strict=True))
    faulty = heapq.merge(*rows)
    upcoming = next(faulty, None)
    for index, pair in enumerate(pairs):
        kinds = []
        while upcoming and upcoming[0] == index:
            kinds.append(upcoming[1])
            upcoming = next(faulty, None)
        yield pair, kinds


def read_pairs_at(source: Source, indices: Sequence[int]) -> dict[int, Pair]:
    """Returns the pairs of a source at some indices; reads no further."""
    selected = frozenset(indices)
    pairs = itertools.islice(source(), max(selected, default=-1) + 1)
    return {index: pair for index, pair in enumerate(pairs) if index in selected}
