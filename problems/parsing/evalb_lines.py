"""Bracketed trees as EVALB reads them: it takes any line for a tree."""

import dataclasses
import re

from .evalb_parameters import EvalbParameters

# A leaf; the start of a constituent; its end; anything else, which is an error.
_ITEM = re.compile(
    r"\((?P<tag>[^\s()]*)\s+(?P<word>[^\s()]*)\)"
    r"|\((?P<label>[^\s()]*)|(?P<close>\))|(?P<stray>\S)",
    re.ASCII,
)
_QUOTES = ("'", '"', "/")
_FUNCTION_TAG = re.compile(r"[-=].*", re.DOTALL)  # in a bracket's label


@dataclasses.dataclass(slots=True)
class Bracket:
    """A constituent over the words from `start` to `stop` - 1."""

    label: str
    start: int
    stop: int = -1


@dataclasses.dataclass(slots=True)
class Quote:
    """A leaf that may be a quotation mark, whether it is left out or not.

    Attributes:
        tag: its tag.
        word: its word.
        index: index of the next word that is not left out.
        next_bracket: index of the first bracket that begins after it.
        outer_brackets: indices of the brackets around it.
    """

    tag: str
    word: str
    index: int
    next_bracket: int
    outer_brackets: tuple[int, ...]


class EvalbLine:
    """The words, tags and brackets of a line.

    Attributes:
        tags: the tags of the words.
        words: the words that are not left out.
        brackets: the brackets, in the order in which they begin.
        quotes: the leaves that may be quotation marks.
        length: number of words, as the parameters count them.
        is_tree: whether the line is a tree.
    """

    def __init__(self, text: str, parameters: EvalbParameters) -> None:
        self.tags: list[str] = []
        self.words: list[str] = []
        self.brackets: list[Bracket] = []
        self.quotes: list[Quote] = []
        self.length = 0
        self.is_tree = True
        self._parameters = parameters
        open_brackets: list[int] = []
        for item in _ITEM.finditer(text):
            if item["word"] is not None:
                self._add_leaf(item["tag"], item["word"], tuple(open_brackets))
            elif item["label"] is not None:
                open_brackets.append(len(self.brackets))
                self.brackets.append(Bracket(item["label"], len(self.words)))
            elif item["close"] and open_brackets:
                self.brackets[open_brackets.pop()].stop = len(self.words)
            else:
                self.is_tree = False
        self.is_tree &= not open_brackets

    def _add_leaf(self, tag: str, word: str, outer_brackets: tuple[int, ...]) -> None:
        parameters = self._parameters
        self.length += tag not in parameters.delete_labels_for_length
        if tag in parameters.quote_labels and word in _QUOTES:
            next_word = len(self.words)
            next_bracket = len(self.brackets)
            quote = Quote(tag, word, next_word, next_bracket, outer_brackets)
            self.quotes.append(quote)
        if tag not in parameters.delete_labels:
            self.tags.append(tag)
            self.words.append(word)

    def restore_quote(self, quote_index: int) -> None:
        """Restores a quotation mark that was left out."""
        quote = self.quotes[quote_index]
        self.tags.insert(quote.index, quote.tag)
        self.words.insert(quote.index, quote.word)
        for bracket in self.brackets[quote.next_bracket :]:
            bracket.start += 1
            bracket.stop += 1
        for outer_bracket in quote.outer_brackets:
            self.brackets[outer_bracket].stop += 1
        for shifted in self.quotes[quote_index:]:
            shifted.index += 1

    def scored_brackets(self) -> list[Bracket]:
        """Returns the brackets that count, without their function tags."""
        match = self._parameters.labels_match
        scored = []
        for bracket in self.brackets:
            label = _FUNCTION_TAG.sub("", bracket.label)
            deleted = any(match(label, x) for x in self._parameters.delete_labels)
            if bracket.start != bracket.stop and not deleted:
                scored.append(Bracket(label, bracket.start, bracket.stop))
        return scored


def align_quotes(gold: EvalbLine, test: EvalbLine, parameters: EvalbParameters) -> None:
    """Restores the quotation marks that one tree leaves out and the other keeps."""
    deleted = parameters.delete_labels
    for test_index, test_quote in enumerate(test.quotes):
        # It stays the same for all gold quotes, although `restore_quote` changes it.
        word_index = test_quote.index
        for gold_index, gold_quote in enumerate(gold.quotes):
            if gold_quote.index != word_index or gold_quote.tag == test_quote.tag:
                continue
            if gold_quote.tag in deleted and test_quote.tag not in deleted:
                gold.restore_quote(gold_index)
            elif test_quote.tag in deleted and gold_quote.tag not in deleted:
                test.restore_quote(test_index)
