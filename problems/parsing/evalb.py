"""F1 of labelled brackets, computed as the EVALB program does.

All rules are EVALB's, even odd ones, so that scores are comparable with published
ones. Only its limits (200 words or brackets per sentence, 5,000 bytes per line,
MAX_ERROR errors) are left out.
"""

import dataclasses
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError, quantity
from t2t_keras.files.text_files import read_lines, read_text

from .evalb_scores import ERROR, SKIP, VALID, F1Report, SentenceScore
from .tree import OUTER, OUTER_LABELS
from .treebank import is_treebank, read_trees

_log = logging.getLogger(__name__)

# The fields of `EvalbParameters` by their names in a .prm file, "" for those without
# effect. A line has a number, a label, or a pair of labels or words.
_INTEGER_FIELDS = {
    "LABELED": "labeled",
    "CUTOFF_LEN": "cutoff_length",
    "DEBUG": "",
    "MAX_ERROR": "",
}
_LABEL_FIELDS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
    "QUOTE_LABEL": "quote_labels",
}
_PAIR_FIELDS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalbParameters:
    """The parameters of an evaluation, as in a .prm file.

    Attributes:
        labeled: whether the labels of brackets must match.
        cutoff_length: maximum number of words in sentences of the second summary.
        delete_labels: labels of brackets that do not count, and tags of leaves that are
            left out with their words.
        delete_labels_for_length: tags of leaves that do not count in the length that is
            compared with `cutoff_length`.
        quote_labels: tags of quotation marks; if only one of two trees leaves out a
            mark, because the tags differ, it is restored.
        equal_labels: pairs of labels or tags that match.
        equal_words: pairs of words that match.
    """

    labeled: bool = True
    cutoff_length: int = 40
    delete_labels: tuple[str, ...] = ()
    delete_labels_for_length: tuple[str, ...] = ()
    quote_labels: tuple[str, ...] = ()
    equal_labels: tuple[tuple[str, str], ...] = ()
    equal_words: tuple[tuple[str, str], ...] = ()

    def labels_match(self, gold: str, test: str) -> bool:
        """Returns whether two labels or tags are equal or declared equal."""
        return gold == test or _contains(self.equal_labels, gold, test)

    def words_match(self, gold: str, test: str) -> bool:
        """Returns whether two words are equal or declared equal."""
        return gold == test or _contains(self.equal_words, gold, test)


def _contains(pairs: tuple[tuple[str, str], ...], gold: str, test: str) -> bool:
    """Returns whether a pair occurs, in either order."""
    return (gold, test) in pairs or (test, gold) in pairs


# COLLINS.prm, the convention of the Penn Treebank's published results.
COLLINS = EvalbParameters(
    delete_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    delete_labels_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)


def read_parameters(path: str | Path) -> EvalbParameters:
    """Reads a .prm file.

    DEBUG and MAX_ERROR have no effect: errors do not stop the evaluation. As in EVALB,
    unknown parameters and malformed pairs are ignored with a warning, and only the
    leading digits of a number are read.

    Raises:
        UserError: the file cannot be read, a parameter has no value, or the file has
            nothing but unknown parameters.
    """
    values: dict[str, Any] = {}
    fields = _INTEGER_FIELDS | _LABEL_FIELDS | _PAIR_FIELDS
    names = set[str]()
    # `read_lines` would refuse a file with a tab in each line, which is a table.
    for line_number, line in enumerate(read_text(path).split("\n"), 1):
        line = line.rstrip()
        if line.startswith("#") or len(line) < 3:  # EVALB's own rule
            continue
        location = f"{path}:{line_number}"
        # A line that begins with a space has no name.
        name, _, value = re.sub(r"\s+", " ", line, count=1).partition(" ")
        names.add(name)
        field = fields.get(name)
        if field is None:
            _log.warning("%s: EVALB has no parameter '%s'", location, name)
        elif not value:
            raise UserError(f"{location}: {name} needs a value")
        elif name in _INTEGER_FIELDS:
            digits = re.match(r"[+-]?\d+", value)
            if digits is None:
                raise UserError(f"{location}: {name} needs a number, not '{value}'")
            values[field] = int(digits[0])
        elif name in _LABEL_FIELDS:
            values[field] = (*values.get(field, ()), value)
        elif len(pair := tuple(value.split())) == 2:
            values[field] = (*values.get(field, ()), pair)
        else:
            warning = "%s: %s needs two values, not '%s'"
            _log.warning(warning, location, name, value)
    if names and names.isdisjoint(fields):
        raise UserError(f"{path} has no parameter of EVALB, such as DELETE_LABEL TOP")
    values.pop("", None)
    return EvalbParameters(**values)


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


# The outermost bracket in a line, around other brackets.
_OUTER = re.compile(
    rf"^\s*\((?:{'|'.join(label for label in OUTER_LABELS if label)})?\s*(?=\()"
)


def evaluate_files(
    gold: str | Path, test: str | Path, parameters: EvalbParameters = COLLINS
) -> F1Report:
    """Scores a file of bracketed trees, one per line, against another.

    Either side may also be a published treebank, a `.mrg` or `.mrg.gz` file or a
    directory of them, whose trees `tree.prepare` prepares; there an empty line is not a
    sentence. If one side is a treebank, the outermost brackets on both sides are
    labelled TOP if they have one of `OUTER_LABELS`. Lines that are not trees are
    reported by a warning.

    Raises:
        UserError: a file cannot be read, there are no gold trees, the numbers of trees
            differ, or a tree of a treebank is bad.
    """
    gold_lines = _read_trees(gold)
    test_lines = _read_trees(test)
    if is_treebank(gold) or is_treebank(test):
        gold_lines = [_OUTER.sub(f"({OUTER} ", line) for line in gold_lines]
        test_lines = [_OUTER.sub(f"({OUTER} ", line) for line in test_lines]
    if len(gold_lines) != len(test_lines):
        raise UserError(
            f"{gold} has {quantity(len(gold_lines), _unit(gold))} and {test} has "
            f"{quantity(len(test_lines), _unit(test))}; number n of one must belong "
            "to number n of the other"
        )
    if not any(EvalbLine(line, parameters).is_tree for line in gold_lines):
        raise UserError(f"{gold} has no tree")
    _warn_of_errors(gold, gold_lines, parameters)
    _warn_of_errors(test, test_lines, parameters)
    return evaluate_trees(gold_lines, test_lines, parameters)


def _read_trees(path: str | Path) -> list[str]:
    if is_treebank(path):
        return [tree.format() for tree in read_trees(path)]
    return list(read_lines(path))


def _unit(path: str | Path) -> str:
    return "trees" if is_treebank(path) else "lines"


def _warn_of_errors(
    path: str | Path, lines: Sequence[str], parameters: EvalbParameters
) -> None:
    """Warns of lines that are not trees."""
    are_trees = [EvalbLine(line, parameters).is_tree for line in lines]
    if not all(are_trees):
        _log.warning(
            "%s: %d of %d lines are not trees, the first of them line %d; EVALB "
            "counts them as errors, or skips them if they have no words",
            *(path, are_trees.count(False), len(lines), are_trees.index(False) + 1),
        )


def evaluate_trees(
    gold: Sequence[str],
    test: Sequence[str],
    parameters: EvalbParameters = COLLINS,
) -> F1Report:
    """Scores bracketed trees against the gold trees of the same sentences.

    Args:
        gold: the gold trees, one per line; an empty line is also a sentence.
        test: the trees to score, likewise.
        parameters: EVALB's parameters.

    Raises:
        UserError: the numbers of trees differ.
    """
    if len(gold) != len(test):
        raise UserError(
            f"there are {len(gold)} gold trees and {len(test)} test trees; line n of "
            "one must belong to line n of the other"
        )
    scores = []
    for gold_text, test_text in zip(gold, test, strict=True):
        gold_line = EvalbLine(gold_text, parameters)
        test_line = EvalbLine(test_text, parameters)
        scores.append(_score(gold_line, test_line, parameters))
    return F1Report(tuple(scores), parameters.cutoff_length)


def _score(
    gold: EvalbLine, test: EvalbLine, parameters: EvalbParameters
) -> SentenceScore:
    """Compares the two trees for one sentence."""
    if test.words and len(gold.words) != len(test.words):
        align_quotes(gold, test, parameters)
    gold_brackets = gold.scored_brackets()
    test_brackets = test.scored_brackets()
    same_words = len(gold.words) == len(test.words) and all(
        map(parameters.words_match, gold.words, test.words)
    )
    counts: dict[str, int] = {}
    compared = bool(test.words) and same_words
    if compared:
        counts = {
            "matched": _count_matched(gold_brackets, test_brackets, parameters),
            "crossing": _count_crossing(gold_brackets, test_brackets),
            "words": len(gold.words),
            "tags": sum(map(parameters.labels_match, gold.tags, test.tags)),
        }
    is_valid = compared and gold.is_tree and test.is_tree
    return SentenceScore(
        length=gold.length,
        status=VALID if is_valid else ERROR if test.words else SKIP,
        gold=len(gold_brackets),
        test=len(test_brackets),
        compared=compared,
        **counts,
    )


def _count_matched(
    gold: list[Bracket], test: list[Bracket], parameters: EvalbParameters
) -> int:
    """Counts matching brackets: each gold bracket uses up the first that matches."""
    unmatched: dict[tuple[int, int], list[str]] = {}
    for bracket in test:
        unmatched.setdefault((bracket.start, bracket.stop), []).append(bracket.label)
    matched = 0
    for bracket in gold:
        labels = unmatched.get((bracket.start, bracket.stop), [])
        for index, label in enumerate(labels):
            if not parameters.labeled or parameters.labels_match(bracket.label, label):
                del labels[index]
                matched += 1
                break
    return matched


def _count_crossing(gold: list[Bracket], test: list[Bracket]) -> int:
    """Counts the test brackets that overlap a gold one without nesting."""
    spans = {(bracket.start, bracket.stop) for bracket in gold}
    count = 0
    for bracket in test:
        for start, stop in spans:
            starts_inside = start < bracket.start < stop < bracket.stop
            stops_inside = bracket.start < start < bracket.stop < stop
            if starts_inside or stops_inside:
                count += 1
                break
    return count
