"""Trees as sequences of symbols that a Transformer can write, and back."""

from collections.abc import Sequence

from t2t_keras.text.tree import OUTER, OUTER_LABELS, Tree

# The constituent labels of the Penn Treebank, and NML of its revision.
CONSTITUENTS = (
    *("ADJP", "ADVP", "CONJP", "FRAG", "INTJ", "LST", "NAC", "NML", "NP", "NX", "PP"),
    *("PRN", "PRT", "QP", "RRC", "S", "SBAR", "SBARQ", "SINV", "SQ", "UCP", "VP"),
    *("WHADJP", "WHADVP", "WHNP", "WHPP", "X"),
)
# Its part-of-speech tags, and AFX and HYPH of its revision.
TAGS = (
    *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNP"),
    *("NNPS", "NNS", "PDT", "POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM"),
    *("TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT", "WP", "WP$", "WRB"),
    *("#", "$", "''", "``", ",", ".", ":", "-LRB-", "-RRB-", "AFX", "HYPH"),
)

# The tag of a word for which a damaged output has none. EVALB leaves punctuation out
# by its tag and cannot score a sentence of which it leaves out too much or too little.
_TAG_OF_WORD = {
    **dict.fromkeys((".", "?", "!"), "."),
    **dict.fromkeys((":", ";", "--", "-", "...", "–", "—"), ":"),
    **dict.fromkeys(("''", '"', "'", "”", "’"), "''"),
    **dict.fromkeys(("``", "`", "“", "‘"), "``"),
    **dict.fromkeys(("-LRB-", "-LSB-", "-LCB-", "(", "[", "{"), "-LRB-"),
    **dict.fromkeys(("-RRB-", "-RSB-", "-RCB-", ")", "]", "}"), "-RRB-"),
    ",": ",",
}
_TAG_OF_OTHERS = "NN"


def linearise(tree: Tree) -> list[str]:
    """Returns tensor2tensor's symbols: `S NP NNP /NP VP VBZ /VP . /S`.

    A constituent is its label, its children and its label after a slash; a leaf is
    its tag. The words and the outermost bracket (TOP or unlabelled) are left out.
    """
    symbols = [
        node.label if entering else f"/{node.label}" for node, entering in tree.walk()
    ]
    return symbols[1:-1] if tree.label in OUTER_LABELS else symbols


def restore(words: Sequence[str], symbols: Sequence[str]) -> Tree:
    """Returns the tree of these symbols over these words: the inverse of `linearise`.

    Any symbols give a well-formed tree with exactly the words, prepared as by
    `text.tree.prepare`. What is damaged is repaired:

    - a closer without a constituent to close, and a constituent without words, are
      dropped; a constituent still open when an outer one closes closes with it;
    - surplus leaves are dropped at the end; words without a leaf are added there, to
      the last constituent under TOP, with the tag of a punctuation mark or NN.

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

    used = 0
    for position, symbol in enumerate(symbols):
        if position in openers:
            stack.append((position, symbol, []))
        elif not _closes(symbol):
            if used < len(words):
                stack[-1][2].append(Tree(symbol, word=words[used]))
                used += 1
        elif position in opener_of:
            while stack[-1][0] >= opener_of[position]:
                close_last()
    while len(stack) > 1:
        close_last()

    children = stack[0][2]
    rest = [
        Tree(_TAG_OF_WORD.get(word, _TAG_OF_OTHERS), word=word) for word in words[used:]
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
