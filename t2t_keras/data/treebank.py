"""Treebanks as examples: sentences and the symbols of their trees."""

import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from t2t_keras.data.files import sha256
from t2t_keras.data.progress import say
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair
from t2t_keras.text.linearise import linearise
from t2t_keras.text.tree import BadTree, Tree
from t2t_keras.text.tree_files import read_trees, tree_files


@dataclasses.dataclass(frozen=True)
class TreebankSource:
    """A `Source` of pairs such as ("dogs run", "S NP NNS /NP VP VBP /VP /S").

    The trees are prepared as parsers are trained on them, see `text.tree.prepare`, and
    are read anew in every pass.

    Attributes:
        paths: one or more files (bracketed trees, plain or gzipped) or directories of
            `.mrg` files.
        sections: of the Wall Street Journal, see `text.tree_files.tree_files`.
        pos_tags: whether the targets have the words' tags, see `linearise`.
        collapse_unary: makes one constituent of X over X.
        skip_bad: leaves out a tree that cannot be used, and says so; else the first
            one raises `UserError`.
        known: the symbols of which the targets consist; a tree with others cannot be
            used. Empty: any.
        dropped: what the last pass left out: reason -> number of trees.
    """

    paths: str | Path | Sequence[str | Path]
    sections: str = ""
    pos_tags: bool = True
    collapse_unary: bool = False
    skip_bad: bool = False
    known: frozenset[str] = frozenset()
    dropped: Counter[str] = dataclasses.field(
        default_factory=Counter, init=False, compare=False, repr=False
    )
    _said: set[str] = dataclasses.field(
        default_factory=set, init=False, compare=False, repr=False
    )

    def __call__(self) -> Iterator[Pair]:
        """Yields the words and the symbols of every tree, separated by spaces."""
        self.dropped.clear()
        for path in self._paths():
            for tree in read_trees(
                path,
                sections=self.sections,
                collapse_unary=self.collapse_unary,
                fault=self._unknown_label if self.known else None,
                on_bad=self._drop if self.skip_bad else None,
            ):
                symbols = linearise(tree, self.pos_tags)
                yield " ".join(tree.words()), " ".join(symbols)

    def symbols(self, known: Iterable[str] = ()) -> tuple[str, ...]:
        """Returns the known symbols and all others that the trees have, in order."""
        found = {symbol for _, target in self() for symbol in target.split(" ")}
        known = tuple(known)
        return (*known, *sorted(found.difference(known)))

    def checksum(self) -> str:
        """Returns what changes with the files or with what becomes of them."""
        files = [f for path in self._paths() for f in tree_files(path, self.sections)]
        try:
            digests = " ".join(sha256(file) for file in files)
        except OSError as error:
            raise UserError(f"cannot read {error.filename}: {error.strerror}") from None
        options = f"{self.pos_tags} {self.collapse_unary} {self.skip_bad}"
        return f"trees {hashlib.sha256(f'{digests} {options}'.encode()).hexdigest()}"

    def _paths(self) -> Sequence[str | Path]:
        return [self.paths] if isinstance(self.paths, str | Path) else self.paths

    def _unknown_label(self, tree: Tree) -> BadTree | None:
        """Returns what is wrong with a tree whose symbols are not all known."""
        unknown = set(linearise(tree, self.pos_tags)) - self.known
        if not unknown:
            return None
        label = min(symbol.removeprefix("/") for symbol in unknown)
        return BadTree(f"no gold tree has the label {label}", "unknown_label")

    def _drop(self, error: BadTree) -> None:
        """Counts a tree that is left out, and reports it once."""
        self.dropped[error.reason] += 1
        if (message := str(error)) not in self._said:
            self._said.add(message)
            say(f"left out: {message}")


@dataclasses.dataclass(frozen=True)
class SilverMix:
    """A `Source` of gold trees among many more that a parser made (section 6.3).

    After every gold tree come so many silver ones; the gold trees are gone through
    again and again until the silver ones end. Each gold tree occurs at least once, each
    silver tree exactly once. Only the gold trees are held in memory.

    Attributes:
        gold: the treebank.
        silver: the trees that were made automatically.
        silver_per_gold: the ratio.
    """

    gold: TreebankSource
    silver: TreebankSource
    silver_per_gold: int

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs of both."""
        gold, silver = list(self.gold()), iter(self.silver())
        given = 0
        while chunk := list(itertools.islice(silver, self.silver_per_gold)):
            if gold:
                yield gold[given % len(gold)]
                given += 1
            yield from chunk
        yield from gold[given:]

    @property
    def dropped(self) -> Counter[str]:
        """What the last pass left out: reason -> number of trees."""
        return self.gold.dropped + self.silver.dropped

    def symbols(self, known: Iterable[str] = ()) -> tuple[str, ...]:
        """Returns the known symbols and all others of the gold trees."""
        return self.gold.symbols(known)

    def over(self, symbols: Iterable[str]) -> Self:
        """Returns the mix without silver trees that have any other symbol."""
        silver = dataclasses.replace(self.silver, known=frozenset(symbols))
        return dataclasses.replace(self, silver=silver)

    def checksum(self) -> str:
        """Returns what changes with either treebank or the ratio."""
        parts = self.gold.checksum(), self.silver.checksum(), self.silver_per_gold
        return " ".join(map(str, parts))
