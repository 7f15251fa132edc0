"""Bracket symbols: which of them open, close and stand for words; repair of outputs."""

import dataclasses
from collections.abc import Sequence
from typing import Self

from t2t_keras.text.linearise import UNKNOWN_TAG
from t2t_keras.text.punctuation import mark_tags


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
            elif _closes(symbol, opens):
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
            inside = bool(result) and _closes(result[-1], opens)
            end = len(result) - inside
            result[end:end] = missing
        return result

    def _openers_among(self, symbols: Sequence[str]) -> set[str]:
        """Returns the labels of constituents: the problem's, and new ones."""
        known = {*self.openers, *self.leaves}
        present = set(symbols)
        new = {s for s in present - known if f"/{s}" in present - known}
        return {*self.openers, *(s for s in new if not set(s) & set("()/"))}


def _closes(symbol: str, openers: set[str]) -> bool:
    """Whether a symbol closes one of these."""
    return symbol.startswith("/") and symbol[1:] in openers
