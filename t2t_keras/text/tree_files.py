"""Treebanks on the disk: which files, which sections, and the trees in them."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.text.tree import OUTER_LABELS, BadTree, Tree, parse_trees, prepare

_LABEL = re.compile(r"\(\s*([^\s()]*)")
# The Wall Street Journal's file NN of section SS: wsj_SSNN.mrg.
_WSJ_FILE = re.compile(r"wsj_(\d{4})\.mrg(\.gz)?", re.IGNORECASE)
_SECTIONS = re.compile(r"(\d\d|\d{4})(?:-(\d\d|\d{4}))?")


def read_trees(
    path: str | Path,
    *,
    sections: str = "",
    raw: bool = False,
    collapse_unary: bool = False,
    fault: Callable[[Tree], BadTree | None] | None = None,
    on_bad: Callable[[BadTree], None] | None = None,
) -> Iterator[Tree]:
    """Reads the trees of a file, or of a directory's `.mrg` and `.mrg.gz` files.

    Both formats are understood: a tree a line, and the Penn Treebank's own, where a
    tree goes over several lines. In both, a bracket in a line's first column begins a
    tree, unless one is open there and the bracket's label is another than the first
    one's and no outermost bracket's. So a tree that is not balanced spoils no others.

    Args:
        path: a file, plain or gzipped, or a directory, searched to any depth.
        sections: see `tree_files`.
        raw: as they stand in the file; else through `prepare`.
        collapse_unary: see `prepare`.
        fault: returns what is wrong with a prepared tree, if anything; the message is
            completed by the place.
        on_bad: called with the error for each tree that cannot be used, which is then
            left out; without it, the first such tree raises.

    Raises:
        UserError: there is no such file, or, without `on_bad`, a tree cannot be used;
            the message names the file and the line.
    """
    for file in tree_files(path, sections):
        for number, lines in _chunks(file):
            for line, tree in _parsed(lines, file, number):
                try:
                    if isinstance(tree, BadTree):
                        raise tree
                    if not raw:
                        tree = prepare(tree, f"{file}:{line}", collapse_unary)
                    if fault is not None and (error := fault(tree)):
                        raise BadTree(f"{file}:{line}: {error}", error.reason)
                    yield tree
                except BadTree as error:
                    if on_bad is None:
                        raise
                    on_bad(error)


def _parsed(
    lines: list[str], file: Path, number: int
) -> Iterator[tuple[int, Tree | BadTree]]:
    """Yields the trees of some lines, or what is wrong, each with its line."""
    for line, text in enumerate(lines, number):
        if not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
            message = f"{file}:{line}: the line is not UTF-8"
            yield line, BadTree(message, "not_utf8")
            return
    yield from parse_trees(lines, str(file), number)


def tree_files(path: str | Path, sections: str = "") -> list[Path]:
    """Returns the file itself, or a directory's `.mrg` and `.mrg.gz` files in order.

    Args:
        path: a file or a directory, searched to any depth.
        sections: which of the files named `wsj_SSNN.mrg`, as the Linguistic Data
            Consortium ships the Wall Street Journal's: sections (`02-21`), files
            (`0001-0159`) or several of either (`00,01,24`). Empty: all files.

    Raises:
        UserError: there is nothing at that path, or nothing of the sections.
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
    for item, numbers in ranges.items():
        if not any(_is_within(file, [numbers]) for file in files):
            raise UserError(
                f"{path}: no file wsj_SSNN.mrg is of the sections {item}; name others "
                "(--train_sections, --dev_sections, --test_sections)"
            )
    return [file for file in files if _is_within(file, ranges.values())]


def is_treebank(path: str | Path) -> bool:
    """Whether a path is a directory, or a file named `.mrg` or `.mrg.gz`."""
    path = Path(path)
    return path.is_dir() or path.name.lower().endswith((".mrg", ".mrg.gz"))


def opener(path: str | Path) -> Callable:
    """Returns what opens a file, plain or gzipped: `open` or `gzip.open`."""
    return gzip.open if Path(path).suffix.lower() == ".gz" else open


def _ranges(sections: str) -> dict[str, range]:
    """Returns the ranges of file numbers SSNN that are named, by what names them."""
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


def _is_within(file: Path, ranges: Iterable[range]) -> bool:
    """Whether a file is of the Wall Street Journal and in one of the ranges."""
    match = _WSJ_FILE.fullmatch(file.name)
    return match is not None and any(int(match[1]) in numbers for numbers in ranges)


def _chunks(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Divides a file where a bracket in the first column begins a tree.

    Yields:
        The number of the first line, from 1, and the lines; what is not UTF-8 in them
        is escaped by surrogates.
    """
    start, lines = 1, []
    depth = 0  # of brackets that are open
    try:
        with opener(file)(file, "rb") as stream:
            for number, line in enumerate(stream, 1):
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                text = line.decode(encoding, "surrogateescape")
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
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    if lines:
        yield start, lines


def _label(line: str) -> str:
    """Returns the label of a line's first bracket."""
    match = _LABEL.search(line)
    return match[1] if match else ""
