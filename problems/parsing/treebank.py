"""Reads treebanks: their files, their trees, and examples for training."""

import dataclasses
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from t2t_keras.console import say
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import refuse_pipes
from t2t_keras.files.json_files import sha256
from t2t_keras.files.text_files import open_binary, raw_lines, readable
from t2t_keras.problem import Pair

from .labels import Survey
from .linearise import Brackets, linearise
from .tree import (
    OUTER_LABELS,
    BadTree,
    Tree,
    end_of_remark,
    is_between_trees,
    is_sgml,
    other_format,
    parse_trees,
    prepare,
    without_tags,
)

# The Wall Street Journal's file NN of section SS: wsj_SSNN.mrg.
_WSJ_FILE = re.compile(r"wsj_(\d{4})\.mrg(\.gz)?", re.IGNORECASE)
_SECTIONS = re.compile(r"(\d\d|\d{4})(?:-(\d\d|\d{4}))?")


def tree_files(path: str | Path, sections: str = "") -> list[Path]:
    """Returns the file itself, or a directory's `.mrg` and `.mrg.gz` files in order.

    Args:
        path: a file, or a directory, searched recursively.
        sections: the files to return, if they are named `wsj_SSNN.mrg`, as in the
            Linguistic Data Consortium's Wall Street Journal: sections (`02-21`), files
            (`0001-0159`) or a list (`00,01,24`). Empty: all files.

    Raises:
        UserError: there are no such files, or none in the sections, or there is a pipe,
            since treebanks are read several times.
    """
    path = Path(path)
    refuse_pipes(path)
    ranges = _ranges(sections)
    if path.is_file():
        files = [path]
    elif path.is_dir():
        with readable(path):
            below = list(path.rglob("*"))
        files = sorted(file for file in below if file.is_file() and is_treebank(file))
        if not files:
            raise UserError(f"{path}: the directory has no .mrg or .mrg.gz file")
    else:
        raise UserError(f"{path}: there is no such file or directory of trees")
    if not sections:
        return files
    file_numbers = {}
    for file in files:
        if match := _WSJ_FILE.fullmatch(file.name):
            file_numbers[file] = int(match[1])
    selected: set[Path] = set()
    for item, file_range in ranges.items():
        matches = {file for file, n in file_numbers.items() if n in file_range}
        if not matches:
            raise UserError(
                f"{path}: no file wsj_SSNN.mrg is in the sections {item}; give others "
                "(--train_sections, --dev_sections, --test_sections)"
            )
        selected |= matches
    return [file for file in files if file in selected]


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
        # A section stands for all its files: 02-21 is 0200 to 2199.
        start = int(f"{match[1]:0<4}")
        stop = int(f"{match[2] or match[1]:9<4}") + 1
        if start >= stop:
            raise UserError(f"sections: the range '{item}' ends before it begins")
        ranges[item] = range(start, stop)
    return ranges


_LABEL = re.compile(r"\(\s*([^\s()]*)")
_BRACKET = re.compile(r"[()]")
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")


def read_trees(
    path: str | Path,
    *,
    sections: str = "",
    collapse_unary: bool = False,
    find_error: Callable[[Tree], BadTree | None] | None = None,
    on_bad: Callable[[BadTree], None] | None = None,
    survey: Survey | None = None,
) -> Iterator[Tree]:
    """Reads the trees in a file, or in a directory's `.mrg` and `.mrg.gz` files.

    Lines between trees, and trees that have only remarks such as `(CODE <P_3>)`, are
    left out.

    A tree may take one line or, as in the Penn Treebank, several. A bracket in the
    first column of a line begins a tree, unless a tree is open and the bracket has
    neither the label of the open tree's first bracket nor an outermost bracket's label.
    So an unbalanced tree does not affect later ones.

    Args:
        path: a file, plain or gzipped, or a directory, searched recursively.
        sections: see `tree_files`.
        collapse_unary: see `prepare`.
        find_error: returns the error in a prepared tree, or None; the location is added
            to its message.
        on_bad: called with the error for each tree that cannot be used, which is then
            skipped; by default, the first such tree raises its error.
        survey: counts unknown labels, and unknown lines between trees, which are then
            left out; by default, such a line is an error.

    Raises:
        UserError: there is no such file, or, without `on_bad`, a tree cannot be used;
            the message names the file and the line.
    """
    for file in tree_files(path, sections):
        for start_line, lines in _chunks(file, survey):
            for line_number, tree in _parsed(lines, file, start_line):
                location = f"{file}:{line_number}"
                try:
                    if isinstance(tree, BadTree):
                        raise tree
                    tree = prepare(tree, location, collapse_unary)
                    if survey is not None:
                        survey.add_tree(location, tree)
                    if find_error is not None and (error := find_error(tree)):
                        raise BadTree(f"{location}: {error}", error.reason)
                    yield tree
                except BadTree as error:
                    if error.reason == "only_remarks":
                        continue
                    if on_bad is None:
                        raise
                    on_bad(error)


def _parsed(
    lines: list[str], file: Path, start_line: int
) -> Iterator[tuple[int, Tree | BadTree]]:
    """Yields the trees in some lines, or their errors, with their line numbers."""
    for line_number, text in enumerate(lines, start_line):
        if not text.isascii() and _ESCAPED_BYTE.search(text):
            message = f"{file}:{line_number}: the line is not UTF-8"
            yield line_number, BadTree(message, "not_utf8")
            return
    yield from parse_trees(lines, str(file), start_line)


def _chunks(
    file: Path, survey: Survey | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Splits a file before each bracket in the first column that begins a tree.

    Args:
        file: the file.
        survey: see `read_trees`.

    Yields:
        The number of the first line, from 1, and the lines. Lines between trees are
        empty, and bytes that are not UTF-8 are escaped by surrogates.

    Raises:
        UserError: the file cannot be read or is in another format, or a remark is not
            closed.
    """
    start_line = 1
    lines: list[str] = []
    depth = 0  # number of open brackets
    remark_line = 0  # where the last remark begins
    remark_end: str | None = None
    with readable(file), open_binary(file) as stream:
        for line_number, line in enumerate(raw_lines(stream, str(file)), 1):
            encoding = "utf-8-sig" if line_number == 1 else "utf-8"
            text = line.decode(encoding, "surrogateescape")
            if depth <= 0 and remark_end is None:
                if name := other_format(text):
                    raise UserError(
                        f"{file}:{line_number}: this is {name}, not trees in brackets "
                        "such as (S (NP ...)); convert the treebank, for example with "
                        "treetools"
                    )
                remark_line = line_number
                remark_end = end_of_remark(text)
            if remark_end is not None:
                remark_end = None if remark_end in text else remark_end
                text = "\n"
            text = without_tags(text)
            if is_sgml(text) or (depth <= 0 and is_between_trees(text)):
                text = "\n"
            elif depth <= 0 and survey is not None and not _BRACKET.search(text):
                survey.add_line(f"{file}:{line_number}", text)
                text = "\n"
            is_complete = lines and (
                depth <= 0 or _label(text) in (_label(lines[0]), *OUTER_LABELS)
            )
            if is_complete and text.startswith("("):
                yield start_line, lines
                lines = []
                depth = 0
            if not lines:
                start_line = line_number
            lines.append(text)
            depth += text.count("(") - text.count(")")
    if remark_end is not None:
        raise UserError(
            f"{file}:{remark_line}: the remark that begins here is not closed by "
            f"{remark_end}"
        )
    if lines:
        yield start_line, lines


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
