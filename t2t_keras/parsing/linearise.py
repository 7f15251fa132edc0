"""Trees as sequences of symbols that a Transformer can write, and back.

`linearise` and `restore` are each other's inverse; `Brackets.repair` makes a tree of
any symbols.
"""

import dataclasses
from collections.abc import Sequence
from typing import Self

from t2t_keras.errors import UserError
from t2t_keras.parsing.punctuation import mark_tags
from t2t_keras.parsing.tree import OUTER, OUTER_LABELS, Tree

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
UNKNOWN_TAG = "NN"  # of a word that is not a punctuation mark and has no tag

BRACKETS = (*CONSTITUENTS, *(f"/{label}" for label in CONSTITUENTS))
SYMBOLS = (*BRACKETS, *TAGS)  # of `linearise`
UNTAGGED_SYMBOLS = (*BRACKETS, UNTAGGED)  # of `linearise` without tags


def linearise(tree: Tree, pos_tags: bool = True) -> list[str]:
    """Returns tensor2tensor's symbols: `S NP NNP /NP VP VBZ /VP . /S`.

    A constituent is its label, its children and its label after a slash; a leaf is
    its tag. The words and the outermost bracket (TOP or unlabelled) are left out.

    Args:
        tree: as `parsing.tree.prepare` returns it.
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

    The symbols alone do not tell a constituent from a tag: a constituent is what a
    closer matches. (Where a treebank has a label that is a tag, too, two trees can have
    the same symbols. The Penn Treebank has none.)

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


def restore_text(source: str, output: str) -> str:
    """Returns the bracketed tree of a decoded output: a `Problem.postprocess`.

    Args:
        source: the words, separated by spaces.
        output: the symbols, separated by spaces.

    Returns:
        The tree on one line; an empty line for a source without words.

    Raises:
        UserError: the symbols are not a tree over the words.
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
    newest = -1  # the last symbol that is not a closer
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


@dataclasses.dataclass(frozen=True)
class Brackets:
    """The symbols of a problem, told apart.

    X is an opener where `/X` is a symbol, too, and `/X` closes it. Any other symbol is
    a leaf and stands for a word: its tag, or one symbol for all words.

    Attributes:
        openers: in the order of the symbols.
        leaves: in the order of the symbols.
    """

    openers: tuple[str, ...]
    leaves: tuple[str, ...]

    @classmethod
    def of(cls, symbols: Sequence[str]) -> Self:
        """Tells the symbols of a problem apart."""
        every = dict.fromkeys(symbols)
        openers = tuple(symbol for symbol in every if f"/{symbol}" in every)
        closers = {f"/{symbol}" for symbol in openers}
        leaves = (s for s in every if s not in openers and s not in closers)
        return cls(openers, tuple(leaves))

    def repair(self, words: Sequence[str], symbols: Sequence[str]) -> list[str]:
        """Returns symbols of a tree over the words; those of a tree are unchanged.

        From left to right,

        - a closer closes the innermost open constituent of its label, and with it all
          that is open inside; without such a constituent it is dropped;
        - a constituent that is closed without a word in it is dropped;
        - a leaf is dropped when every word has its leaf.

        At the end the words that have no leaf get one, their tag's if the problem has
        it (a punctuation mark's own, else NN), as the last children of the outermost
        constituent (the last of several; without any constituent they stand alone), and
        what is open is closed.

        A label that the problem does not have is taken as it is when it is both opened
        and closed. Any other unknown symbol stands for a word if it has no slash before
        it, with the leaf that a missing word would get.

        Args:
            words: of the source; at least one.
            symbols: what a model wrote.
        """
        opens = self._openers_among(symbols)
        leaves = self.leaves
        leaf_of = [
            tag if not leaves or tag in leaves else leaves[0]
            for tag in (mark or UNKNOWN_TAG for mark in mark_tags(words))
        ]
        result: list[str] = []
        unclosed: list[int] = []  # places in `result` of the open openers
        count = 0

        def close() -> None:
            place = unclosed.pop()
            if place == len(result) - 1:
                result.pop()
            else:
                result.append(f"/{result[place]}")

        for symbol in symbols:
            if symbol in opens:
                unclosed.append(len(result))
                result.append(symbol)
            elif _closes_one_of(opens, symbol):
                if symbol[1:] in (result[place] for place in unclosed):
                    while result[unclosed[-1]] != symbol[1:]:
                        close()
                    close()
            elif count < len(words) and (symbol in leaves or symbol[0] != "/"):
                known = symbol in leaves
                result.append(symbol if known else leaf_of[count])
                count += 1
        missing = leaf_of[count:]
        while len(unclosed) > 1:
            close()
        if unclosed:
            result += missing
            close()
        else:
            inside = bool(result) and _closes_one_of(opens, result[-1])
            end = len(result) - inside
            result[end:end] = missing
        return result

    def _openers_among(self, symbols: Sequence[str]) -> set[str]:
        """Returns the labels of constituents: the problem's, and new ones."""
        known = {*self.openers, *self.leaves}
        present = set(symbols)
        new = {s for s in present - known if f"/{s}" in present - known}
        return {*self.openers, *(s for s in new if not set(s) & set("()/"))}


def _closes_one_of(openers: set[str], symbol: str) -> bool:
    """Whether a symbol closes one of these."""
    return symbol.startswith("/") and symbol[1:] in openers
