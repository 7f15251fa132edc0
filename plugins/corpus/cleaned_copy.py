"""Cleaned copies of the sources of an inspection, as recipes say."""

import dataclasses
import heapq
import html
import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_keras.console import progress
from t2t_keras.data.raw_texts import write_texts
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.files.atomic import open_lines
from t2t_keras.files.config_files import parse_toml
from t2t_keras.files.text_files import read_text
from t2t_keras.problem import Pair, Source

from .findings import FAULTS
from .inspection import PairFault, counted

DROP = "drop"
KEEP = "keep"
# What may be done about a fault, besides dropping or keeping the pair.
REPAIRS = {"swapped": "exchange", "entities": "unescape"}

# The first lines of each recipe.
HEADER = """\
# What `t2t inspect --recipe THIS_FILE --apply DIR` does with pairs that have faults:
# "drop" leaves them out, "keep" copies them, "exchange" swaps source and target,
# "unescape" undoes HTML entities. The lines of `keep_lines` are copied as they are.
"""

_HYPHEN = re.compile(r"(?:^| )@-@(?: |$)")


@dataclasses.dataclass(frozen=True)
class SplitRecipe:
    """What is done with the faulty pairs of a split.

    Attributes:
        actions: the action for each fault.
        keep_lines: the numbers of lines, from 1, that are copied as they are.
    """

    actions: Mapping[str, str]
    keep_lines: frozenset[int] = frozenset()

    def apply(self, line: int, pair: Pair, faults: Collection[str]) -> Pair | None:
        """Returns what becomes of a pair; None: it is dropped.

        Args:
            line: its number, from 1.
            pair: the pair.
            faults: the names of its faults.
        """
        source, target = pair
        if line in self.keep_lines:
            return source, target
        actions = {self.actions.get(fault, KEEP) for fault in faults}
        if DROP in actions:
            return None
        if "unescape" in actions:
            source = _unescaped(source)
            target = _unescaped(target)
        return (target, source) if "exchange" in actions else (source, target)


def actions_of(fault: str) -> tuple[str, ...]:
    """Returns the actions that are possible for a fault, the best one first."""
    repair = REPAIRS.get(fault)
    return (repair, DROP, KEEP) if repair else (DROP, KEEP)


def keep_all() -> SplitRecipe:
    """Returns the recipe that changes nothing."""
    return SplitRecipe(dict.fromkeys(FAULTS, KEEP))


def default_recipe(is_train: bool) -> SplitRecipe:
    """Returns the recipe of a split: held-out data stay as they are."""
    if not is_train:
        return keep_all()
    return SplitRecipe({fault: actions_of(fault)[0] for fault in FAULTS})


def read_recipes(path: str | Path) -> dict[str, SplitRecipe]:
    """Reads a recipe for each split.

    Raises:
        UserError: the file cannot be read, or is not a recipe.
    """
    tables = parse_toml(read_text(path), f"--recipe: {path}")
    recipes = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"--recipe: {path}: '{name}' is not the table of a split")
        actions = dict(table)
        lines = actions.pop("keep_lines", [])
        if not isinstance(lines, list) or not all(type(x) is int for x in lines):
            raise UserError(
                f"--recipe: {path}: keep_lines of [{name}] must be a list of numbers"
            )
        for fault, action in actions.items():
            if fault not in FAULTS:
                raise UserError(
                    f"--recipe: {path}: there is no fault '{fault}'"
                    f"{did_you_mean(fault, FAULTS)}"
                )
            if action not in actions_of(fault):
                raise UserError(
                    f"--recipe: {path}: {fault} must be one of "
                    f"{', '.join(actions_of(fault))}, not {action!r}"
                )
        recipes[name] = SplitRecipe(actions, frozenset(lines))
    return recipes


def format_recipes(recipes: Mapping[str, SplitRecipe]) -> str:
    """Returns recipes as TOML, which `read_recipes` reads."""
    lines = [HEADER]
    for name, recipe in recipes.items():
        # A TOML string is written as JSON's.
        key = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name)
        lines.append(f"[{key}]")
        for fault, action in recipe.actions.items():
            lines.append(f'{fault} = "{action}"')
        if recipe.keep_lines:
            lines.append(f"keep_lines = {sorted(recipe.keep_lines)}")
        lines.append("")
    return "\n".join(lines)


def _unescaped(text: str) -> str:
    """Returns a text without HTML entities and escapes of Moses' tokenizer."""
    return _HYPHEN.sub("-", html.unescape(text))


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
