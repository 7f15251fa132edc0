"""Cleaned copies of the sources of an inspection, as recipes say."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_keras.data.atomic_files import open_lines
from t2t_keras.data.progress import progress
from t2t_keras.problem import Pair, Source

from .recipe import SplitRecipe, format_recipes
from .split_inspection import PairFault

RECIPE = "recipe.toml"
_CHUNK = 2_000  # pairs between two reports of progress


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
    num_read = 0
    num_written = 0
    num_repaired = 0
    with (
        contextlib.ExitStack() as stack,
        progress(f"copying {name}", "pairs") as advance,
    ):
        files = [stack.enter_context(open_lines(path)) for path in paths]
        for pair, names in _with_faults(source(), faults):
            num_read += 1
            copied = recipe.apply(num_read, pair, names)
            if copied is not None:
                num_written += 1
                num_repaired += copied != tuple(pair)
                for file, text in zip(files, copied, strict=True):
                    file.write(f"{' '.join(text.splitlines())}\n")
            if num_read % _CHUNK == 0:
                advance(_CHUNK)
        advance(num_read % _CHUNK)
    dropped = num_read - num_written
    source_path, target_path = map(str, paths)
    return CopiedSplit(source_path, target_path, num_written, dropped, num_repaired)


def _with_faults(
    pairs: Iterable[Pair], faults: Sequence[PairFault]
) -> Iterator[tuple[Pair, list[str]]]:
    """Yields each pair with the names of its faults."""
    indices = np.concatenate([np.zeros(0, int), *(x.indices for x in faults)])
    kinds = []
    for fault in faults:
        kinds += [fault.finding.kind] * len(fault.indices)
    order = np.argsort(indices, kind="stable").tolist()
    position = 0
    for index, pair in enumerate(pairs):
        names = []
        while position < len(order) and indices[order[position]] == index:
            names.append(kinds[order[position]])
            position += 1
        yield pair, names


def read_pairs_at(source: Source, indices: Sequence[int]) -> dict[int, Pair]:
    """Returns the pairs of a source at some indices; reads no further."""
    selected = frozenset(indices)
    pairs = itertools.islice(source(), max(selected, default=-1) + 1)
    return {index: pair for index, pair in enumerate(pairs) if index in selected}
