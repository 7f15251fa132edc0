"""Bracketed constituency trees: reading, preparing, formatting.

Published treebanks write other things beside their trees, words and constituents. The
conventions are those of

- the Penn Treebank (LDC99T42), with the Switchboard's codes and disfluencies;
- the Chinese Treebank: SGML lines such as `<S ID=1>` between trees;
- the Penn-Helsinki corpora and their relatives (YCOE, IcePaHC, MCVF, Tycho Brahe):
  `ID`, `CODE` and `METADATA`, and empty categories without the tag -NONE-;
  IcePaHC's words are followed by their lemmas, `kom-koma`;
- Negra and Tiger: the root VROOT, traces such as `*T1*`, lines that begin with `%%`;
- SPMRL: tags with features, `DET##lem=le|cpos=D##`.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from t2t_keras.errors import UserError

EMPTY_TAG = "-NONE-"  # the Penn Treebank's tag of a trace, a leaf without a word

# Leaves with these tags are not words: the number of a sentence; a page, a speaker or
# an editor's remark; facts about a text; a mark of disfluency.
_ANNOTATION_TAGS = frozenset({"ID", "CODE", "METADATA", "-DFL-"})
# Everything inside of these brackets is such a remark.
_ANNOTATION_BRACKETS = frozenset({"CODE", "METADATA"})

# Empty categories that stand where a word stands, without the tag -NONE-. Others in
# asterisks may be words: *sigh* is one in the English Web Treebank.
_EMPTY_WORD = re.compile(
    r"\*(?:T\d*|t|ICH|ich|EXP|RNR|PPA|OP|PRO|pro|con|exp|arb)\*(?:-\d+)?"
)
# In a tree with an ID: a gap, as in (VBD *), and an unpronounced word, as in (C 0).
_GAP = re.compile(r"\*(?:-\d+)?")
_SILENT_TAG = re.compile(r"C|CP|P|W[A-Z]+")
# What looks like an empty category. *LRB* is Tiger's bracket, a word.
_ASTERISKS = re.compile(r"\*(?!LRB\*|RRB\*|LSB\*|RSB\*)[^*\s]+\*(?:-\d+)?")

# Lines between trees: SGML, the frames of the Penn Treebank's copyright notices, and
# comments as in Lisp, Negra and CoNLL.
_SGML = re.compile(r"<[/!?]?[A-Za-z][^()]*")
_BETWEEN_TREES = re.compile(r"<[/!?]?[A-Za-z]|\*x\*|;|%|#")
# Tags or a number, `#1`, in the line of the tree that follows them, and the end tags.
# The tree begins with two brackets, or goes on in the next line: "(AP)" is not one.
_BEFORE_TREE = re.compile(
    r"\s*(?:<[/!?]?[A-Za-z][^<>()]*>\s*|#\d+\s*)+(?=\(\s*[^\s()]*\s*(?:\(|\Z))"
)
_AFTER_TREE = re.compile(r"(?<=\))\s*(?:</[A-Za-z][^<>()]*>\s*)+\Z")

# How lines of treebanks begin that are not in brackets, and the names of the formats.
_FORMATS = {
    re.compile(r"#(?:FORMAT|BOS)[ \t]+\d"): "NEGRA's export format",
    re.compile(r"<(?:t|nt)\s[^>]*\bid="): "TIGER-XML",
    re.compile(r"1(?:-\d+)?\t(?:[^\t]*\t){6,}"): "CoNLL's format",
}

# Remarks of several lines between trees, as CorpusSearch writes and reads them.
_REMARKS = {"/*": "*/", "/~*": "*~/"}


def core_label(label: str) -> str:
    """Strips features, function tags and indices: NP-SBJ-1 becomes NP."""
    label = label.partition("##")[0] or label
    match = re.match("[^-=]+", label)
    return match.group() if match else label  # -LRB- begins with a hyphen


def is_annotation(node: "Tree") -> bool:
    """Returns whether a leaf or a constituent is a remark, which has no words."""
    label = core_label(node.label)
    if node.word is not None:
        return label in _ANNOTATION_TAGS
    return label in _ANNOTATION_BRACKETS


def has_id(tree: "Tree") -> bool:
    """Returns whether a tree has a leaf ID, as in the Penn-Helsinki corpora."""
    return any(node.word is not None and node.label == "ID" for node in tree.children)


def is_empty(leaf: "Tree", in_tree_with_id: bool) -> bool:
    """Returns whether a leaf is an empty category.

    Args:
        leaf: the leaf.
        in_tree_with_id: whether it belongs to a tree of the Penn-Helsinki corpora.
    """
    word = leaf.word or ""
    if leaf.label == EMPTY_TAG or _EMPTY_WORD.fullmatch(word):
        return True
    if not in_tree_with_id:
        return False
    is_silent = word == "0" and _SILENT_TAG.fullmatch(core_label(leaf.label))
    return bool(is_silent or _GAP.fullmatch(word))


def looks_empty(leaf: "Tree") -> bool:
    """Returns whether a leaf that is read as a word may be an empty category."""
    return _ASTERISKS.fullmatch(leaf.word or "") is not None


def without_lemmas(words: Sequence[str]) -> list[str]:
    """Returns the words of a tree with an ID; of IcePaHC's, without their lemmas.

    All words of a sentence have a hyphen there, also punctuation marks (`.-.`). If a
    word or its lemma has hyphens, it is divided in the middle of them.
    """
    has_lemmas = len(words) > 1 and all(re.fullmatch(".+-.+", word) for word in words)
    if not has_lemmas:
        return list(words)
    result = []
    for word in words:
        parts = word.split("-")
        result.append("-".join(parts[: (len(parts) + 1) // 2]))
    return result


def without_tags(line: str) -> str:
    """Returns a line with a tree without the tags or the number beside the tree."""
    start = _BEFORE_TREE.match(line)
    return _AFTER_TREE.sub("\n", line[start.end() if start else 0 :])


def is_between_trees(line: str) -> bool:
    """Returns whether a line outside of trees is one that treebanks have there."""
    return not line.strip() or _BETWEEN_TREES.match(line.lstrip()) is not None


def is_sgml(line: str) -> bool:
    """Returns whether a line is SGML, which no line within a tree is."""
    return _SGML.fullmatch(line.strip()) is not None


def other_format(line: str) -> str | None:
    """Returns the name of the format, not in brackets, that has such lines, if any."""
    for beginning, name in _FORMATS.items():
        if beginning.match(line.lstrip()):
            return name
    return None


def end_of_remark(line: str) -> str | None:
    """Returns what ends the remark that begins with a line outside of trees, if any."""
    for opening, closing in _REMARKS.items():
        if line.lstrip().startswith(opening):
            return closing
    return None


OUTER = "TOP"  # the label of the outermost bracket after `prepare`
# Its labels in treebanks. Those that are not empty are never a constituent's.
OUTER_LABELS = ("", OUTER, "ROOT", "S1", "VROOT")

# A whole leaf; a bracket; a label or word. Words may contain any character except
# brackets and ASCII white space; other space, such as a no-break space, is allowed.
_ITEM = re.compile(r"\(([^()\s]+)[ \t]+([^()\s]+)[ \t]*\)|([()])|([^()\s]+)", re.ASCII)


class BadTree(UserError):
    """A tree that cannot be used.

    Attributes:
        reason: the kind of error, for counting: "unbalanced_brackets",
            "space_in_word", "word_without_tag", "bracket_without_label", "no_words",
            "not_utf8", "unknown_label"; "only_remarks": it is not meant to have words.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """A node: either a constituent with children, or a leaf with a tag and a word.

    Attributes:
        label: the constituent's label, or the word's tag.
        children: a constituent's children, from left to right.
        word: a leaf's word.
    """

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None

    def walk(self) -> Iterator[tuple["Tree", bool]]:
        """Yields (node, True) on entering a node and (node, False) on leaving it.

        The order is that of the text; leaves are only entered. Neither this nor its
        users recurse, so that trees may have any depth.
        """
        stack = [(self, True)]
        while stack:
            node, entering = stack.pop()
            yield node, entering
            if entering and node.word is None:
                stack.append((node, False))
                stack.extend((child, True) for child in reversed(node.children))

    def words(self) -> list[str]:
        """Returns the words from left to right."""
        return [node.word for node, _ in self.walk() if node.word is not None]

    def format(self) -> str:
        """Returns the tree in one line: `(TOP (S (NP (NN dogs)) (VP (VBP run))))`.

        A bracket in a word is written as in the Treebank, -LRB- or -RRB-.
        """
        parts: list[str] = []
        for node, entering in self.walk():
            if not entering:
                parts.append(")")
            elif node.word is None:
                parts.append(f" ({node.label}")
            else:
                word = node.word.replace("(", "-LRB-").replace(")", "-RRB-")
                parts.append(f" ({node.label} {word})")
        return "".join(parts).removeprefix(" ")


def parse_tree(text: str, location: str = "tree") -> Tree:
    """Reads one tree; only the outermost bracket may lack a label.

    Args:
        text: the tree, in one line or more.
        location: the file, for error messages.

    Raises:
        UserError: the tree cannot be read (`BadTree`), or there is not one tree.
    """
    trees = []
    for _, tree in parse_trees(text.split("\n"), location):
        if isinstance(tree, BadTree):
            raise tree
        trees.append(tree)
    if len(trees) != 1:
        raise UserError(f"{location}: {len(trees)} trees where one is expected")
    return trees[0]


def parse_trees(
    lines: Iterable[str], location: str, start_line: int = 1
) -> Iterator[tuple[int, Tree | BadTree]]:
    """Reads the trees in consecutive lines.

    A tree is yielded after the whole line in which it ends has been read.

    Args:
        lines: the lines.
        location: the file, for error messages.
        start_line: number of the first line.

    Yields:
        The number of the line in which a tree begins, and the tree, or the error if it
        cannot be read.
    """
    stack: list[_OpenBracket] = []
    error: BadTree | None = None  # the first error in the current tree
    for line, text in enumerate(lines, start_line):
        complete: list[tuple[int, Tree | BadTree]] = []  # trees that end in this line
        stray: str | None = None
        for tag, word, bracket, token in _ITEM.findall(text):
            if bracket == "(":
                stack.append(_OpenBracket(line))
            elif not (tag or stack):
                stray = stray or bracket or token
            elif token:
                if stack[-1].children:
                    error = error or stack[-1].word_error(token, f"{location}:{line}")
                stack[-1].tokens.append(token)
            else:  # a leaf, or the end of a bracket
                first_line = line
                node = Tree(tag, word=word)
                if bracket:
                    closed = stack.pop()
                    first_line = closed.line
                    node = closed.node()
                    error = error or closed.find_error(node, not stack, location)
                if stack:
                    stack[-1].children.append(node)
                else:
                    complete.append((first_line, error or node))
                    error = None
        if stray:  # a tree that ends in this line may be only a part
            message = f"{location}:{line}: '{stray}' stands outside of any bracket"
            complete[-1:] = [(line, BadTree(message, "unbalanced_brackets"))]
        yield from complete
    if stack:
        missing = "1 bracket" if len(stack) == 1 else f"{len(stack)} brackets"
        where = f"{location}:{stack[0].line}"
        message = f"{where}: the tree that begins here is not closed; {missing} missing"
        yield stack[0].line, BadTree(message, "unbalanced_brackets")


def prepare(tree: Tree, location: str = "tree", collapse_unary: bool = False) -> Tree:
    """Prepares a treebank's tree for training and scoring of parsers.

    Traces and remarks such as `(CODE <P_3>)` are removed, and constituents that have
    nothing else; features, function tags and indices are stripped
    (NP-SBJ-1 and NP=2 become NP, -LRB- stays); the outermost bracket is labelled TOP,
    and added if there is none; brackets of `OUTER_LABELS` within it are removed.
    Chains of NP over NP stay unless `collapse_unary` is set, because EVALB counts both
    brackets.

    Args:
        tree: a tree as read from a file.
        location: file:line of the tree, for error messages.
        collapse_unary: whether to collapse chains of X over X into one constituent.

    Raises:
        BadTree: the tree has no words; the reason is "no_words", or "only_remarks" for
            a tree that was not meant to have any.
    """
    with_id = has_id(tree)
    has_remarks = False
    has_traces = False
    skipped: Tree | None = None  # the remark that is being left out
    levels: list[list[Tree]] = [[]]  # the children so far of each open constituent
    for node, entering in tree.walk():
        if skipped is not None:
            if node is skipped:
                skipped = None
        elif entering and is_annotation(node):
            has_remarks = True
            skipped = node if node.word is None else None
        elif node.word is not None:
            if is_empty(node, with_id):
                has_traces = True
            else:
                levels[-1].append(Tree(core_label(node.label), word=node.word))
        elif entering:
            levels.append([])
        elif children := levels.pop():
            levels[-1] += _constituent(node, children, collapse_unary)
        # A constituent without words is left out.
    if not levels[0]:
        only_remarks = has_remarks and not has_traces
        reason = "only_remarks" if only_remarks else "no_words"
        raise BadTree(f"{location}: the tree has no words", reason)
    inner = levels[0]
    while len(inner) == 1 and inner[0].word is None and inner[0].label in OUTER_LABELS:
        inner = list(inner[0].children)
    prepared = Tree(OUTER, tuple(inner))
    if with_id:
        words = prepared.words()
        bare = without_lemmas(words)
        return prepared if bare == words else _with_words(prepared, bare)
    return prepared


def _with_words(tree: Tree, words: Iterable[str]) -> Tree:
    """Returns a tree with other words."""
    following = iter(words)
    levels: list[list[Tree]] = [[]]  # the children so far of each open constituent
    for node, entering in tree.walk():
        if node.word is not None:
            levels[-1].append(Tree(node.label, word=next(following)))
        elif entering:
            levels.append([])
        else:
            children = levels.pop()
            levels[-1].append(Tree(node.label, tuple(children)))
    return levels[0][0]


def _constituent(node: Tree, children: list[Tree], collapse: bool) -> list[Tree]:
    """Returns the nodes that replace a constituent in a prepared tree."""
    label = core_label(node.label)
    if label and label in OUTER_LABELS:
        return children
    only = children[0]
    is_chain = len(children) == 1 and only.word is None and only.label == label
    if collapse and is_chain:
        return [only]
    return [Tree(label, tuple(children))]


@dataclasses.dataclass(slots=True)
class _OpenBracket:
    """A bracket that is not closed yet."""

    line: int
    tokens: list[str] = dataclasses.field(default_factory=list)  # label and words
    children: list[Tree] = dataclasses.field(default_factory=list)

    def node(self) -> Tree:
        """Returns the node, as far as it can be built."""
        label, *words = self.tokens or [""]
        if words and not self.children:
            return Tree(label, word=" ".join(words))
        return Tree(label, tuple(self.children))

    def find_error(self, node: Tree, outermost: bool, location: str) -> BadTree | None:
        """Returns the error in the closed node; None if there is none."""
        location = f"{location}:{self.line}"
        if self.children and len(self.tokens) > 1:
            return self.word_error(self.tokens[1], location)
        if len(self.tokens) > 2:
            leaf = " ".join(self.tokens)
            message = f"{location}: the leaf ({leaf}) has a space in its word"
            return BadTree(message, "space_in_word")
        if outermost:
            if node.words():
                return None
            return BadTree(f"{location}: the tree has no words", "no_words")
        if not self.tokens:
            message = f"{location}: a bracket within a tree has no label"
            if not self.children:  # it may be a word, as in (NN ()
                message += "; write a bracket in a word as -LRB- or -RRB-"
            return BadTree(message, "bracket_without_label")
        return None

    def word_error(self, word: str, location: str) -> BadTree:
        """Returns the error for a word among a constituent's children."""
        label = self.tokens[0] if self.tokens else ""
        message = (
            f"{location}: the word '{word}' stands beside brackets in ({label} ...); "
            "put it into a bracket with a tag"
        )
        return BadTree(message, "word_without_tag")
