"""What published treebanks write beside their trees, words and constituents.

The conventions are those of

- the Penn Treebank (LDC99T42), with the Switchboard's codes and disfluencies;
- the Chinese Treebank: SGML lines such as `<S ID=1>` between trees;
- the Penn-Helsinki corpora and their relatives (YCOE, IcePaHC, MCVF, Tycho Brahe):
  `ID`, `CODE` and `METADATA`, and empty categories without the tag -NONE-;
  IcePaHC's words are followed by their lemmas, `kom-koma`;
- Negra and Tiger: the root VROOT, traces such as `*T1*`, lines that begin with `%%`;
- SPMRL: tags with features, `DET##lem=le|cpos=D##`.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tree import Tree

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
