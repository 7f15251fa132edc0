"""Treebanks: finds their files, reads their trees, yields training examples."""

import dataclasses
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from t2t_keras.data.checksums import sha256
from t2t_keras.data.console import say
from t2t_keras.data.text_files import open_binary, raw_lines, readable
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair

from .conventions import is_between_trees, is_sgml
from .linearise import Brackets, linearise
from .survey import Survey
from .tree import OUTER_LABELS, BadTree, Tree, parse_trees, prepare

_LABEL = re.compile(r"\(\s*([^\s()]*)")
_BRACKET = re.compile(r"[()]")
# The Wall Street Journal's file NN of section SS: wsj_SSNN.mrg.
_WSJ_FILE = re.compile(r"wsj_(\d{4})\.mrg(\.gz)?", re.IGNORECASE)
_SECTIONS = re.compile(r"(\d\d|\d{4})(?:-(\d\d|\d{4}))?")


def read_trees(
    path: str | Path,
    *,
    sections: str = "",
    collapse_unary: bool = False,
    fault: Callable[[Tree], BadTree | None] | None = None,
    on_bad: Callable[[BadTree], None] | None = None,
    survey: Survey | None = None,
) -> Iterator[Tree]:
    """Reads the trees in a file, or in a directory's `.mrg` and `.mrg.gz` files.

    Lines between trees, and trees that have only remarks such as `(CODE <P_3>)`, are
    left out, see `conventions`.

    It reads both formats: one tree per line, and the Penn Treebank's, in which a tree
    takes several lines. In both, a bracket in the first column of a line begins a tree,
    unless a tree is open and the bracket has neither the label of the open tree's first
    bracket nor an outermost bracket's label. So an unbalanced tree does not affect
    later ones.

    Args:
        path: a file, plain or gzipped, or a directory, searched recursively.
        sections: see `tree_files`.
        collapse_unary: see `prepare`.
        fault: returns the error in a prepared tree, if there is one; the place is added
            to its message.
        on_bad: called with the error for each tree that cannot be used, which is then
            skipped; by default, the first such tree raises its error.
        survey: counts unknown labels, and unknown lines between trees, which are then
            left out; by default, such a line is an error of a tree.

    Raises:
        UserError: there is no such file, or, without `on_bad`, a tree cannot be used;
            the message names the file and the line.
    """
    for file in tree_files(path, sections):
        for number, lines in _chunks(file, survey):
            for line, tree in _parsed(lines, file, number):
                place = f"{file}:{line}"
                try:
                    if isinstance(tree, BadTree):
                        raise tree
                    tree = prepare(tree, place, collapse_unary)
                    if survey is not None:
                        survey.add_tree(place, tree)
                    if fault is not None and (error := fault(tree)):
                        raise BadTree(f"{place}: {error}", error.reason)
                    yield tree
                except BadTree as error:
                    if error.reason == "only_remarks":
                        continue
                    if on_bad is None:
                        raise
                    on_bad(error)


def _parsed(
    lines: list[str], file: Path, number: int
) -> Iterator[tuple[int, Tree | BadTree]]:
    """Yields the trees in some lines, or their errors, with their line numbers."""
    for line, text in enumerate(lines, number):
        if not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
            message = f"{file}:{line}: the line is not UTF-8"
            yield line, BadTree(message, "not_utf8")
            return
    yield from parse_trees(lines, str(file), number)


def tree_files(path: str | Path, sections: str = "") -> list[Path]:
    """Returns the file itself, or a directory's `.mrg` and `.mrg.gz` files in order.

    Args:
        path: a file, or a directory, searched recursively.
        sections: the files to keep, if they are named `wsj_SSNN.mrg`, as in the
            Linguistic Data Consortium's Wall Street Journal: sections (`02-21`), files
            (`0001-0159`) or a list (`00,01,24`). Empty: all files.

    Raises:
        UserError: there are no such files, or none in the sections.
    """
    path = Path(path)
    ranges = _ranges(sections)
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = sorted(
            file for file in path.rglob("*") if file.is_file() and is_treebank(file)
        )
        if not files:
            raise UserError(f"{path}: the directory has no .mrg or .mrg.gz file")
    else:
        raise UserError(f"{path}: there is no such file or directory of trees")
    if not sections:
        return files
    numbers = {f: int(m[1]) for f in files if (m := _WSJ_FILE.fullmatch(f.name))}
    for item, some in ranges.items():
        if not any(number in some for number in numbers.values()):
            raise UserError(
                f"{path}: no file wsj_SSNN.mrg is in the sections {item}; give others "
                "(--train_sections, --dev_sections, --test_sections)"
            )
    return [f for f, n in numbers.items() if any(n in some for some in ranges.values())]


def is_treebank(path: str | Path) -> bool:
    """Returns whether a path is a directory, or a file named `.mrg` or `.mrg.gz`."""
    path = Path(path)
    return path.is_dir() or path.name.lower().endswith((".mrg", ".mrg.gz"))


def _ranges(sections: str) -> dict[str, range]:
    """Returns the range of file numbers SSNN for each item in the list `sections`."""
    ranges = {}
    for item in sections.replace(" ", "").split(",") if sections else ():
        match = _SECTIONS.fullmatch(item)
        if match is None:
            raise UserError(
                f"sections: '{item}' is neither a section (02), a file of one (0203) "
                "nor a range of them (02-21)"
            )
        first, last = match[1], match[2] or match[1]
        numbers = range(int(f"{first:0<4}"), int(f"{last:9<4}") + 1)
        if not numbers:
            raise UserError(f"sections: the range '{item}' ends before it begins")
        ranges[item] = numbers
    return ranges


def _chunks(
    file: Path, survey: Survey | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Splits a file before each bracket in the first column that begins a tree.

    Args:
        file: the file.
        survey: see `read_trees`.

    Yields:
        The number of the first line, from 1, and the lines; those that stand between
        trees are empty, and bytes that are not UTF-8 are escaped by surrogates.
    """
    start = 1
    lines: list[str] = []
    depth = 0  # number of open brackets
    with readable(file), open_binary(file) as stream:
        for number, line in enumerate(raw_lines(stream, str(file)), 1):
            encoding = "utf-8-sig" if number == 1 else "utf-8"
            text = line.decode(encoding, "surrogateescape")
            if is_sgml(text) or (depth <= 0 and is_between_trees(text)):
                text = "\n"
            elif depth <= 0 and survey is not None and not _BRACKET.search(text):
                survey.add_line(f"{file}:{number}", text)
                text = "\n"
            if text.startswith("(") and lines:
                label = _label(text)
                same = (_label(lines[0]), *OUTER_LABELS)
                if depth <= 0 or label in same:
                    yield start, lines
                    lines, depth = [], 0
            if not lines:
                start = number
            lines.append(text)
            depth += text.count("(") - text.count(")")
    if lines:
        yield start, lines


def _label(line: str) -> str:
    """Returns the label of a line's first bracket."""
    match = _LABEL.search(line)
    return match[1] if match else ""


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
        new_labels: whether labels are taken that no published treebank has; otherwise
            more than 1% of such trees raise `UserError`.
        known: the allowed symbols; a tree with others cannot be used. Empty: any.
        dropped: the number of trees skipped in the last pass, by reason.
    """

    paths: str | Path | Sequence[str | Path]
    sections: str = ""
    pos_tags: bool = True
    collapse_unary: bool = False
    skip_bad: bool = False
    new_labels: bool = False
    known: frozenset[str] = frozenset()
    dropped: Counter[str] = dataclasses.field(
        default_factory=Counter, init=False, compare=False, repr=False
    )
    _said: set[str] = dataclasses.field(
        default_factory=set, init=False, compare=False, repr=False
    )

    def __call__(self) -> Iterator[Pair]:
        """Yields the words and the symbols of every tree, separated by spaces.

        Raises:
            UserError: a tree cannot be used; or, after the last pair, too many have
                unknown labels or unknown lines between them, see `Survey`.
        """
        self.dropped.clear()
        survey = Survey(accepts_labels=self.new_labels or bool(self.known))
        for path in self._paths():
            for tree in read_trees(
                path,
                sections=self.sections,
                collapse_unary=self.collapse_unary,
                fault=self._unknown_label if self.known else None,
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

    def symbols(self, known: Iterable[str] = ()) -> tuple[str, ...]:
        """Returns the known symbols and those in the trees, brackets before leaves."""
        found = {symbol for _, target in self() for symbol in target.split(" ")}
        known = tuple(known)
        symbols = (*known, *sorted(found.difference(known)))
        leaves = Brackets.of(symbols).leaves
        return tuple(sorted(symbols, key=leaves.__contains__))

    def checksum(self) -> str:
        """Returns a hash of the files and the options."""
        files = [f for path in self._paths() for f in tree_files(path, self.sections)]
        digests = " ".join(map(sha256, files))
        options = f"{self.pos_tags} {self.collapse_unary} {self.skip_bad}"
        return f"trees {hashlib.sha256(f'{digests} {options}'.encode()).hexdigest()}"

    def _paths(self) -> Sequence[str | Path]:
        return [self.paths] if isinstance(self.paths, str | Path) else self.paths

    def _unknown_label(self, tree: Tree) -> BadTree | None:
        """Returns the error in a tree that has an unknown symbol; None otherwise."""
        unknown = set(linearise(tree, self.pos_tags)) - self.known
        if not unknown:
            return None
        label = min(symbol.removeprefix("/") for symbol in unknown)
        return BadTree(f"no gold tree has the label {label}", "unknown_label")

    def _drop(self, error: BadTree) -> None:
        """Counts a skipped tree, and reports it once."""
        self.dropped[error.reason] += 1
        self._say_once(f"left out: {error}")

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
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
        """The number of trees skipped in the last pass, by reason."""
        return self.gold.dropped + self.silver.dropped

    def checksum(self) -> str:
        """Returns a hash of both treebanks and the ratio."""
        parts = self.gold.checksum(), self.silver.checksum(), self.silver_per_gold
        return " ".join(map(str, parts))
