"""Bracketed constituency trees: parse, prepare, print; files of them, too."""

import dataclasses
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_keras.errors import UserError

OUTER = "TOP"  # what `prepare` calls the outermost bracket
OUTER_LABELS = ("", OUTER, "ROOT", "S1")  # what treebanks call it
EMPTY_TAG = "-NONE-"  # of a trace: a leaf that stands for no word

# Words may hold any character but brackets and ASCII white space; other white space,
# a no-break space say, is part of the word.
_TOKEN = re.compile(r"[()]|[^()\s]+", re.ASCII)
_CORE_LABEL = re.compile(r"[^-=]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """A node: either a constituent with children, or a leaf with a tag and a word.

    Attributes:
        label: the constituent's label, or the word's tag.
        children: of a constituent, from left to right.
        word: of a leaf.
    """

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None

    def walk(self) -> Iterator[tuple["Tree", bool]]:
        """Yields (node, True) on entering a node and (node, False) on leaving it.

        The order is that of the text; leaves are entered only. No recursion here or
        in any function that uses this, so that no depth is too great.
        """
        stack = [(self, True)]
        while stack:
            node, entering = stack.pop()
            yield node, entering
            if entering and node.word is None:
                stack.append((node, False))
                stack.extend((child, True) for child in reversed(node.children))

    def leaves(self) -> Iterator["Tree"]:
        """Yields the leaves from left to right."""
        return (node for node, _ in self.walk() if node.word is not None)

    def words(self) -> list[str]:
        """Returns the words from left to right."""
        return [leaf.word for leaf in self.leaves() if leaf.word is not None]

    def tags(self) -> list[str]:
        """Returns the words' tags from left to right."""
        return [leaf.label for leaf in self.leaves()]

    def format(self) -> str:
        """Returns the tree on one line: `(TOP (S (NP (NN dogs)) (VP (VBP run))))`.

        A bracket within a word is written as the Treebank does, -LRB- or -RRB-.
        """
        pieces: list[str] = []
        for node, entering in self.walk():
            if not entering:
                pieces.append(")")
                continue
            separator = "" if not pieces else " "
            if node.word is None:
                pieces.append(f"{separator}({node.label}")
            else:
                word = node.word.replace("(", "-LRB-").replace(")", "-RRB-")
                pieces.append(f"{separator}({node.label} {word})")
        return "".join(pieces)


def parse_tree(text: str, place: str = "tree") -> Tree:
    """Reads one tree; only the outermost bracket may lack a label.

    Args:
        text: the tree, on one line or more.
        place: where it stands, for the message.

    Raises:
        UserError: brackets do not match, a word has a space in it, there is no word,
            or there is more than the one tree.
    """
    trees = list(_parse([text], place, 1))
    if len(trees) != 1:
        raise UserError(f"{place}: {len(trees)} trees where one is expected")
    return trees[0]


def prepare(tree: Tree, place: str = "tree") -> Tree:
    """Makes of a treebank's tree what parsers are trained and scored on.

    Traces, and what is empty without them, are removed; function tags and indices are
    stripped (NP-SBJ-1 and NP=2 become NP, -LRB- stays); the outermost bracket is
    labelled TOP, and added where there is none. Chains such as NP over NP stay.

    Args:
        tree: as read from a file.
        place: where it stands, for the message.

    Raises:
        UserError: nothing is left.
    """
    levels: list[list[Tree]] = [[]]  # the children so far, of every open constituent
    for node, entering in tree.walk():
        if node.word is not None:
            if node.label != EMPTY_TAG:
                levels[-1].append(Tree(_core(node.label), word=node.word))
        elif entering:
            levels.append([])
        elif children := levels.pop():
            levels[-1].append(Tree(_core(node.label), tuple(children)))
        # else a constituent without words: left out
    if not levels[0]:
        raise UserError(f"{place}: the tree has no words")
    inner = levels[0]
    while len(inner) == 1 and inner[0].word is None and inner[0].label in OUTER_LABELS:
        inner = list(inner[0].children)
    return Tree(OUTER, tuple(inner))


def read_trees(
    path: str | Path,
    *,
    raw: bool = False,
    on_bad: Callable[[UserError], None] | None = None,
) -> Iterator[Tree]:
    """Reads the trees of a file, or of a directory's `.mrg` and `.mrg.gz` files.

    Both formats are understood: a tree a line, and the Penn Treebank's own, where a
    tree goes over several lines. In both, a bracket in a line's first column begins a
    tree.

    Args:
        path: a file, plain or gzipped, or a directory, searched to any depth.
        raw: as they stand in the file; else through `prepare`.
        on_bad: called with the error for each tree that cannot be used, which is then
            left out; without it, the first such tree raises.

    Raises:
        UserError: there is no such file, or, without `on_bad`, a tree cannot be used;
            the message names the file and the line.
    """
    for file in tree_files(path):
        for number, lines in _chunks(file):
            try:
                for tree in _parse(lines, str(file), number):
                    yield tree if raw else prepare(tree, f"{file}:{number}")
            except UserError as error:
                if on_bad is None:
                    raise
                on_bad(error)


def tree_files(path: str | Path) -> list[Path]:
    """Returns the file itself, or a directory's `.mrg` and `.mrg.gz` files in order.

    Raises:
        UserError: there is nothing at that path.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: there is no such file or directory of trees")
    files = sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and file.name.lower().endswith((".mrg", ".mrg.gz"))
    )
    if not files:
        raise UserError(f"{path}: the directory has no .mrg or .mrg.gz file")
    return files


def _core(label: str) -> str:
    """Strips function tags and indices from a label."""
    match = _CORE_LABEL.match(label)
    return match.group() if match else label  # -LRB- begins with the sign


def _chunks(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Divides a file where a bracket stands in the first column.

    Yields:
        The number of the first line, from 1, and the lines.
    """
    start, lines = 1, []
    opener = gzip.open if file.suffix.lower() == ".gz" else open
    number = 0
    try:
        with opener(file, "rb") as stream:
            for number, line in enumerate(stream, 1):
                text = line.decode("utf-8")
                if text.startswith("(") and lines:
                    yield start, lines
                    lines = []
                if not lines:
                    start = number
                lines.append(text)
    except UnicodeDecodeError:
        raise UserError(f"{file}:{number}: the line is not UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    if lines:
        yield start, lines


@dataclasses.dataclass(slots=True)
class _Open:
    """A bracket that is not closed yet."""

    line: int
    tokens: list[str] = dataclasses.field(default_factory=list)  # label and words
    children: list[Tree] = dataclasses.field(default_factory=list)

    def close(self, outermost: bool, place: str) -> Tree:
        """Makes the node."""
        if self.children:
            if len(self.tokens) > 1:
                raise UserError(
                    f"{place}:{self.line}: the word '{self.tokens[1]}' stands beside "
                    f"brackets in ({self.tokens[0]} ...); give it a tag of its own"
                )
            if not self.tokens and not outermost:
                raise UserError(
                    f"{place}:{self.line}: a bracket within a tree has no label"
                )
            return Tree("".join(self.tokens), tuple(self.children))
        if len(self.tokens) > 2:
            raise UserError(
                f"{place}:{self.line}: the leaf ({' '.join(self.tokens)}) has a space "
                "in its word"
            )
        if len(self.tokens) == 2:
            return Tree(self.tokens[0], word=self.tokens[1])
        return Tree("".join(self.tokens))


def _parse(lines: list[str], place: str, number: int) -> Iterator[Tree]:
    """Reads the trees of consecutive lines, of which the first has that number.

    A tree is yielded when the line that it ends on is known to be good.
    """
    stack: list[_Open] = []
    for line, text in enumerate(lines, number):
        complete: list[Tree] = []
        for token in _TOKEN.findall(text):
            if token == "(":
                stack.append(_Open(line))
            elif not stack:
                raise UserError(
                    f"{place}:{line}: '{token}' stands outside of any bracket"
                )
            elif token != ")":
                if stack[-1].children:
                    raise UserError(
                        f"{place}:{line}: the word '{token}' stands beside brackets; "
                        "give it a tag of its own"
                    )
                stack[-1].tokens.append(token)
            else:
                first = stack[0].line
                closed = stack.pop()
                tree = closed.close(not stack, place)
                if stack:
                    stack[-1].children.append(tree)
                    continue
                if not any(True for _ in tree.leaves()):
                    raise UserError(f"{place}:{first}: the tree has no words")
                complete.append(tree)
        yield from complete
    if stack:
        missing = f"{len(stack)} bracket" + ("s" if len(stack) > 1 else "")
        raise UserError(
            f"{place}:{stack[0].line}: the tree that begins here is not closed; "
            f"{missing} missing"
        )
