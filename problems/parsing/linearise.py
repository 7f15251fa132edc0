"""Conversion between trees and the sequences of symbols that a model writes.

`linearise` and `restore` are inverse to each other; `Brackets.repair` turns any
sequence of symbols into a tree's.
"""

import dataclasses
from collections.abc import Sequence
from typing import Self

from t2t_keras.errors import UserError

from .tree import OUTER, OUTER_LABELS, Tree
from .words import mark_tags

# The constituent labels of the Penn Treebank, its revision, and treebanks in its style
# (OntoNotes, English Web, CRAFT), and two ambiguous ones.
CONSTITUENTS = (
    *("ADJP", "ADVP", "CONJP", "FRAG", "INTJ", "LST", "NAC", "NML", "NP", "NX", "PP"),
    *("PRN", "PRT", "QP", "RRC", "S", "SBAR", "SBARQ", "SINV", "SQ", "UCP", "VP"),
    *("WHADJP", "WHADVP", "WHNP", "WHPP", "X"),
    *("EDITED", "EMBED", "META", "TYPO", "CAPTION", "CIT", "HEADING", "TITLE"),
    *("ADVP|PRT", "PRT|ADVP"),
)
# The part-of-speech tags of the same treebanks. None is also a constituent's label.
TAGS = (
    *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNP"),
    *("NNPS", "NNS", "PDT", "POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM"),
    *("TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT", "WP", "WP$", "WRB"),
    *("#", "$", "''", "``", ",", ".", ":", "-LRB-", "-RRB-"),
    *("ADD", "AFX", "GW", "HYPH", "NFP"),
)
UNTAGGED = "XX"  # replaces all tags, as in Vinyals et al. (2015)
UNKNOWN_TAG = "NN"  # the tag for words without a tag that are not punctuation

BRACKETS = (*CONSTITUENTS, *(f"/{label}" for label in CONSTITUENTS))
SYMBOLS = (*BRACKETS, *TAGS)  # what `linearise` can return
UNTAGGED_SYMBOLS = (*BRACKETS, UNTAGGED)  # the same without tags


def linearise(tree: Tree, pos_tags: bool = True) -> list[str]:
    """Returns tensor2tensor's symbols: `S NP NNP /NP VP VBZ /VP . /S`.

    A constituent is written as its label, its children, and its label after a slash; a
    leaf is written as its tag. Words and the outermost bracket (TOP or unlabelled) are
    left out.

    Args:
        tree: a tree from `tree.prepare`.
        pos_tags: whether a leaf is written as its tag or as XX. EVALB scores no tags,
            but to predict them is a richer training signal, and they mark punctuation.
    """

    def symbol(node: Tree, entering: bool) -> str:
        if not entering:
            return f"/{node.label}"
        return node.label if pos_tags or node.word is None else UNTAGGED

    symbols = [symbol(node, entering) for node, entering in tree.walk()]
    return symbols[1:-1] if tree.label in OUTER_LABELS else symbols


def restore(words: Sequence[str], symbols: Sequence[str]) -> Tree:
    """Returns the tree with these symbols over these words: inverts `linearise`.

    A word whose symbol is XX gets the tag of a punctuation mark, if it is one, or else
    NN, because EVALB leaves out punctuation by its tag.

    A symbol is a constituent if a closer matches it, and otherwise a tag. (If a
    treebank had a label that is also a tag, two trees could have the same symbols. The
    Penn Treebank has none.)

    Raises:
        UserError: the symbols are not a tree over exactly these words; see
            `Brackets.repair`.
    """
    opener_of = _match(symbols)
    openers = set(opener_of.values())
    tags = [tag or UNKNOWN_TAG for tag in mark_tags(words)]
    stack: list[tuple[str, list[Tree]]] = [(OUTER, [])]  # every open constituent
    used = 0
    for position, symbol in enumerate(symbols):
        if position in openers:
            stack.append((symbol, []))
        elif position in opener_of:
            label, children = stack.pop()
            if not children:
                raise _no_tree(words, symbols)
            stack[-1][1].append(Tree(label, tuple(children)))
        elif _closes(symbol) or used == len(words):
            raise _no_tree(words, symbols)
        else:
            tag = tags[used] if symbol == UNTAGGED else symbol
            stack[-1][1].append(Tree(tag, word=words[used]))
            used += 1
    if used < len(words):
        raise _no_tree(words, symbols)
    return Tree(OUTER, tuple(stack[0][1]))


def _no_tree(words: Sequence[str], symbols: Sequence[str]) -> UserError:
    return UserError(
        f"the symbols '{' '.join(symbols)}' are not a tree over the {len(words)} words "
        f"'{' '.join(words)}'"
    )


def _closes(symbol: str) -> bool:
    """Returns whether the symbol is `/X`; a slash alone can be a tag."""
    return symbol.startswith("/") and len(symbol) > 1


def _match(symbols: Sequence[str]) -> dict[int, int]:
    """Returns the position of the opener for the position of each closer.

    A closer matches the nearest symbol with its label that is not right before it (a
    constituent is never empty), or the one right before it if there is no other.
    """
    opener_of: dict[int, int] = {}
    unmatched: list[int] = []  # positions that a closer could still match, in order
    newest = -1  # the last symbol that is not a closer
    for position, symbol in enumerate(symbols):
        if not _closes(symbol):
            unmatched.append(position)
            newest = position
            continue
        candidates = []
        for index, opener in enumerate(unmatched):
            if symbols[opener] == symbol[1:]:
                candidates.append(index)
        if len(candidates) > 1 and unmatched[candidates[-1]] == newest:
            candidates.pop()
        if candidates:
            opener_of[position] = unmatched[candidates[-1]]
            del unmatched[candidates[-1] :]
    return opener_of


@dataclasses.dataclass(frozen=True)
class Brackets:
    """The symbols of a problem, divided into openers, closers and leaves.

    X is an opener if `/X` is also a symbol, and `/X` is its closer. Any other symbol is
    a leaf, which stands for a word: a tag, or one symbol for all words.

    Attributes:
        openers: the openers, in the order of the symbols.
        leaves: the leaves, in the order of the symbols.
    """

    openers: tuple[str, ...]
    leaves: tuple[str, ...]

    @classmethod
    def from_symbols(cls, symbols: Sequence[str]) -> Self:
        """Divides the symbols of a problem."""
        unique = dict.fromkeys(symbols)
        openers = []
        leaves = []
        for symbol in unique:
            if f"/{symbol}" in unique:
                openers.append(symbol)
            elif symbol[:1] != "/" or symbol[1:] not in unique:
                leaves.append(symbol)
        return cls(tuple(openers), tuple(leaves))

    def repair(self, words: Sequence[str], symbols: Sequence[str]) -> list[str]:
        """Repairs symbols so that they are a tree over the words.

        Symbols that are a tree stay unchanged. From left to right,

        - a closer closes the innermost open constituent with its label, and all open
          ones inside it; a closer without one is dropped;
        - a constituent that is closed without a word in it is dropped;
        - a leaf is dropped if all words have leaves.

        At the end, words without leaves are added as the last children of the outermost
        constituent (of the last one, if there are several; without any, they stand
        alone). Their leaf is their tag if the problem has it (a punctuation mark's tag,
        or NN). Then all open constituents are closed.

        An unknown label is kept if it is both opened and closed. Any other unknown
        symbol without a slash before it stands for a word, with the leaf that a missing
        word would get.

        Args:
            words: the words of the source; at least one.
            symbols: the model's output.
        """
        known_symbols = {*self.openers, *self.leaves}
        unknown = set(symbols) - known_symbols
        opens = {*self.openers}
        for symbol in unknown:
            if f"/{symbol}" in unknown and not set(symbol) & set("()/"):
                opens.add(symbol)
        closes = {f"/{symbol}" for symbol in opens}
        leaves = self.leaves
        word_leaves = []  # the leaf that each word gets if its symbol is missing
        for tag in mark_tags(words):
            tag = tag or UNKNOWN_TAG
            word_leaves.append(tag if not leaves or tag in leaves else leaves[0])
        result: list[str] = []
        unclosed: list[int] = []  # positions in `result` of the open openers
        count = 0

        def close() -> None:
            opener_index = unclosed.pop()
            if opener_index == len(result) - 1:
                result.pop()
            else:
                result.append(f"/{result[opener_index]}")

        for symbol in symbols:
            if symbol in opens:
                unclosed.append(len(result))
                result.append(symbol)
            elif symbol in closes:
                if symbol[1:] in (result[index] for index in unclosed):
                    while result[unclosed[-1]] != symbol[1:]:
                        close()
                    close()
            elif count < len(words) and (symbol in leaves or symbol[0] != "/"):
                result.append(symbol if symbol in leaves else word_leaves[count])
                count += 1
        missing = word_leaves[count:]
        while len(unclosed) > 1:
            close()
        if unclosed:
            result += missing
            close()
        else:
            inside = bool(result) and result[-1] in closes
            position = len(result) - inside
            result[position:position] = missing
        return result
