"""Sources of training examples that read treebanks."""

import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_keras.console import say
from t2t_keras.files.json_files import sha256
from t2t_keras.problem import Pair

from .linearise import Brackets, linearise
from .survey import Survey
from .tree import BadTree, Tree
from .treebank import read_trees
from .treebank_files import tree_files


@dataclasses.dataclass(frozen=True)
class TreebankSource:
    """A `Source` of pairs such as ("dogs run", "S NP NNS /NP VP VBP /VP /S").

    The trees are prepared by `tree.prepare`, and read again in every pass.

    Attributes:
        paths: one or more files (bracketed trees, plain or gzipped) or directories with
            `.mrg` files.
        sections: sections of the Wall Street Journal, see `tree_files`.
        pos_tags: whether the targets have the words' tags, see `linearise`.
        collapse_unary: whether to collapse X over X into one constituent.
        skip_bad: whether to skip and report trees that cannot be used; otherwise the
            first one raises `UserError`.
        new_labels: whether to accept labels that no published treebank has; otherwise
            `UserError` is raised if more than 1% of the trees have one.
        allowed_symbols: a tree with other symbols cannot be used. Empty: any symbols.
        dropped: the number of trees skipped in the last pass, by reason.
    """

    paths: str | Path | Sequence[str | Path]
    sections: str = ""
    pos_tags: bool = True
    collapse_unary: bool = False
    skip_bad: bool = False
    new_labels: bool = False
    allowed_symbols: frozenset[str] = frozenset()
    dropped: Counter[str] = dataclasses.field(
        default_factory=Counter, init=False, compare=False, repr=False
    )
    _printed: set[str] = dataclasses.field(
        default_factory=set, init=False, compare=False, repr=False
    )

    def __call__(self) -> Iterator[Pair]:
        """Yields the words and the symbols of every tree, separated by spaces.

        Raises:
            UserError: a tree cannot be used; or, after the last pair, too many have
                unknown labels or unknown lines between them, see `Survey`.
        """
        self.dropped.clear()
        survey = Survey(accepts_labels=self.new_labels or bool(self.allowed_symbols))
        for path in self._paths():
            for tree in read_trees(
                path,
                sections=self.sections,
                collapse_unary=self.collapse_unary,
                find_error=self._unknown_label if self.allowed_symbols else None,
                on_bad=self._drop if self.skip_bad else None,
                survey=survey,
            ):
                symbols = linearise(tree, self.pos_tags)
                yield " ".join(tree.words()), " ".join(symbols)
        survey.check()
        for sentence in survey.sentences():
            self._say_once(sentence)

    def check(self) -> None:
        """Reads all trees, for the errors that reading them raises."""
        for _ in self():
            pass

    def symbols(self, problem_symbols: Sequence[str] = ()) -> tuple[str, ...]:
        """Returns the problem's symbols and those in the trees, brackets first."""
        tree_symbols: set[str] = set()
        for _, target in self():
            tree_symbols.update(target.split(" "))
        new_symbols = sorted(tree_symbols.difference(problem_symbols))
        symbols = (*problem_symbols, *new_symbols)
        leaves = Brackets.from_symbols(symbols).leaves
        return tuple(sorted(symbols, key=leaves.__contains__))

    def checksum(self) -> str:
        """Returns a hash of the files and the options."""
        files: list[Path] = []
        for path in self._paths():
            files += tree_files(path, self.sections)
        digests = " ".join(map(sha256, files))
        options = f"{self.pos_tags} {self.collapse_unary} {self.skip_bad}"
        return f"trees {hashlib.sha256(f'{digests} {options}'.encode()).hexdigest()}"

    def _paths(self) -> Sequence[str | Path]:
        return [self.paths] if isinstance(self.paths, str | Path) else self.paths

    def _unknown_label(self, tree: Tree) -> BadTree | None:
        """Returns the error in a tree that has an unknown symbol, or None."""
        unknown = set(linearise(tree, self.pos_tags)) - self.allowed_symbols
        if not unknown:
            return None
        label = min(symbol.removeprefix("/") for symbol in unknown)
        return BadTree(f"no gold tree has the label {label}", "unknown_label")

    def _drop(self, error: BadTree) -> None:
        """Counts a skipped tree, and reports it once."""
        self.dropped[error.reason] += 1
        self._say_once(f"left out: {error}")

    def _say_once(self, message: str) -> None:
        if message not in self._printed:
            self._printed.add(message)
            say(message)


@dataclasses.dataclass(frozen=True)
class SilverMix:
    """A `Source` of gold trees mixed with automatically parsed ones (section 6.3).

    Each gold tree is followed by `silver_per_gold` silver trees; the gold trees are
    repeated until the silver ones end. Each gold tree occurs at least once, each silver
    tree exactly once. Only the gold trees are held in memory.

    Attributes:
        gold: the treebank.
        silver: the automatically parsed trees.
        silver_per_gold: number of silver trees after each gold tree.
    """

    gold: TreebankSource
    silver: TreebankSource
    silver_per_gold: int

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs of both sources."""
        gold = list(self.gold())
        silver = iter(self.silver())
        count = 0  # of gold trees that were yielded
        while chunk := list(itertools.islice(silver, self.silver_per_gold)):
            if gold:
                yield gold[count % len(gold)]
                count += 1
            yield from chunk
        yield from gold[count:]

    @property
    def dropped(self) -> Counter[str]:
        """The number of trees skipped in the last pass, by reason."""
        return self.gold.dropped + self.silver.dropped

    def checksum(self) -> str:
        """Returns a hash of both treebanks and the ratio."""
        parts = self.gold.checksum(), self.silver.checksum(), self.silver_per_gold
        return " ".join(map(str, parts))
