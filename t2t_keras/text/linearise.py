"""Trees as sequences of symbols that a Transformer can write, and back."""

from collections.abc import Sequence

from t2t_keras.text.punctuation import mark_tags
from t2t_keras.text.tree import OUTER, OUTER_LABELS, Tree

# The constituent labels of the Penn Treebank, those of its revision and of treebanks in
# its style (OntoNotes, English Web, CRAFT), and two that an annotator did not decide.
CONSTITUENTS = (
    *("ADJP", "ADVP", "CONJP", "FRAG", "INTJ", "LST", "NAC", "NML", "NP", "NX", "PP"),
    *("PRN", "PRT", "QP", "RRC", "S", "SBAR", "SBARQ", "SINV", "SQ", "UCP", "VP"),
    *("WHADJP", "WHADVP", "WHNP", "WHPP", "X"),
    *("EDITED", "EMBED", "META", "TYPO", "CAPTION", "CIT", "HEADING", "TITLE"),
    *("ADVP|PRT", "PRT|ADVP"),
)
# Likewise the part-of-speech tags. None is a constituent's label.
TAGS = (
    *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNP"),
    *("NNPS", "NNS", "PDT", "POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM"),
    *("TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT", "WP", "WP$", "WRB"),
    *("#", "$", "''", "``", ",", ".", ":", "-LRB-", "-RRB-"),
    *("ADD", "AFX", "GW", "HYPH", "NFP"),
)
UNTAGGED = "XX"  # in place of every tag, as by Vinyals et al. (2015)
UNKNOWN_TAG = "NN"  # of a word that is no punctuation mark and has no tag

BRACKETS = (*CONSTITUENTS, *(f"/{label}" for label in CONSTITUENTS))
SYMBOLS = (*BRACKETS, *TAGS)  # of `linearise`
UNTAGGED_SYMBOLS = (*BRACKETS, UNTAGGED)  # of `linearise` without tags


def linearise(tree: Tree, pos_tags: bool = True) -> list[str]:
    """Returns tensor2tensor's symbols: `S NP NNP /NP VP VBZ /VP . /S`.

    A constituent is its label, its children and its label after a slash; a leaf is
    its tag. The words and the outermost bracket (TOP or unlabelled) are left out.

    Args:
        tree: as `text.tree.prepare` returns it.
        pos_tags: whether a leaf is its tag; else it is XX. EVALB scores no tags, but
            a model that predicts them is trained on more, and tells which words are
            punctuation.
    """

    def symbol(node: Tree, entering: bool) -> str:
        if not entering:
            return f"/{node.label}"
        return node.label if pos_tags or node.word is None else UNTAGGED

    symbols = [symbol(node, entering) for node, entering in tree.walk()]
    return symbols[1:-1] if tree.label in OUTER_LABELS else symbols


def restore(words: Sequence[str], symbols: Sequence[str]) -> Tree:
    """Returns the tree of these symbols over these words: the inverse of `linearise`.

    A word whose symbol is XX has the tag of a punctuation mark, if it is one, or NN:
    EVALB leaves punctuation out by its tag.

    Any symbols give a well-formed tree with exactly the words, prepared as by
    `text.tree.prepare`. What is damaged is repaired:

    - a closer without a constituent to close, and a constituent without words, are
      dropped; a constituent still open when an outer one closes closes with it;
    - surplus leaves are dropped at the end; words without a leaf are added there, to
      the last constituent under TOP, as if their symbol were XX.

    The symbols alone do not tell a constituent from a tag. A symbol begins a
    constituent when a closer matches it; symbols without one are tags, as in any
    undamaged sequence, if that gives as many leaves as words. Otherwise those that
    are known for constituents' labels are taken for constituents left open. (Where a
    treebank has a label that is a tag, too, two trees can have the same symbols. The
    Penn Treebank has none.)
    """
    opener_of = _match(symbols)
    inner = [i for i, symbol in enumerate(symbols) if not _closes(symbol)]
    openers = set(opener_of.values())
    if len(inner) - len(openers) != len(words):
        labels = {*CONSTITUENTS, *(s[1:] for s in symbols if _closes(s))}
        openers.update(i for i in inner if symbols[i] in labels)

    # Every open constituent: the position of its opener, its label, its children.
    stack: list[tuple[int, str, list[Tree]]] = [(-1, OUTER, [])]

    def close_last() -> None:
        _, label, children = stack.pop()
        if children:
            stack[-1][2].append(Tree(label, tuple(children)))

    tags = [tag or UNKNOWN_TAG for tag in mark_tags(words)]
    used = 0
    for position, symbol in enumerate(symbols):
        if position in openers:
            stack.append((position, symbol, []))
        elif not _closes(symbol):
            if used < len(words):
                tag = tags[used] if symbol == UNTAGGED else symbol
                stack[-1][2].append(Tree(tag, word=words[used]))
                used += 1
        elif position in opener_of:
            while stack[-1][0] >= opener_of[position]:
                close_last()
    while len(stack) > 1:
        close_last()

    children = stack[0][2]
    rest = [
        Tree(tag, word=word)
        for tag, word in zip(tags[used:], words[used:], strict=True)
    ]
    if rest and children and children[-1].word is None:
        last = children.pop()
        rest = [Tree(last.label, (*last.children, *rest))]
    return Tree(OUTER, (*children, *rest))


def restore_text(source: str, output: str) -> str:
    """Returns the bracketed tree of a decoded output: a `Problem.postprocess`.

    Args:
        source: the words, separated by spaces.
        output: the symbols, separated by spaces.

    Returns:
        The tree on one line; an empty line for a source without words.
    """
    words = [word for word in source.split(" ") if word]
    return restore(words, output.split()).format() if words else ""


def _closes(symbol: str) -> bool:
    """Whether the symbol is `/X`; a slash alone can be a tag."""
    return symbol.startswith("/") and len(symbol) > 1


def _match(symbols: Sequence[str]) -> dict[int, int]:
    """Matches closers to openers: position of the closer -> position of the opener.

    A closer matches the nearest symbol of its label with anything in between (a
    constituent is never empty), or, where there is none, the symbol right before it.
    """
    opener_of: dict[int, int] = {}
    unmatched: list[int] = []  # what a closer could still match, in order
    newest = -1  # the last symbol that is no closer
    for position, symbol in enumerate(symbols):
        if not _closes(symbol):
            unmatched.append(position)
            newest = position
            continue
        candidates = [
            index for index, i in enumerate(unmatched) if symbols[i] == symbol[1:]
        ]
        if len(candidates) > 1 and unmatched[candidates[-1]] == newest:
            candidates.pop()
        if candidates:
            opener_of[position] = unmatched[candidates[-1]]
            del unmatched[candidates[-1] :]
    return opener_of
