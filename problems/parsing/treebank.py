"""Reads the trees of treebanks."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import open_binary, raw_lines, readable

from .conventions import (
    end_of_remark,
    is_between_trees,
    is_sgml,
    other_format,
    without_tags,
)
from .survey import Survey
from .tree import OUTER_LABELS, BadTree, Tree, parse_trees, prepare
from .treebank_files import tree_files

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
    left out, see `conventions`.

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
