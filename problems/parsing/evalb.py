"""F1 of labelled brackets, computed as the EVALB program does.

All rules are EVALB's, even odd ones, so that scores are comparable with published
ones. Only its limits (200 words or brackets per sentence, 5,000 bytes per line,
MAX_ERROR errors) are left out.
"""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from t2t_keras.errors import UserError, quantity
from t2t_keras.files.text_files import read_lines

from .evalb_lines import Bracket, EvalbLine, align_quotes
from .evalb_parameters import COLLINS, EvalbParameters
from .evalb_scores import ERROR, SKIP, VALID, F1Report, SentenceScore
from .tree import OUTER, OUTER_LABELS
from .treebank import read_trees
from .treebank_files import is_treebank

_log = logging.getLogger(__name__)

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
