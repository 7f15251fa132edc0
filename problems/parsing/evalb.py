"""F1 of labelled brackets, computed and printed as the EVALB program does.

All rules are EVALB's, even odd ones, so that scores are comparable with published
ones. Only its limits (200 words or brackets per sentence, 5,000 bytes per line,
MAX_ERROR errors) are left out. The file has three parts: the parameters (.prm files),
the scores, and the report.
"""

import dataclasses
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_keras.data.lines import read_lines
from t2t_keras.errors import UserError

from .tree import OUTER, OUTER_LABELS
from .treebank import is_treebank, read_trees

_log = logging.getLogger(__name__)

# The fields of `EvalbParameters` by their names in a .prm file, "" for those without
# effect. A line has a number, a label, or a pair of labels or words.
_NUMBERS = {"LABELED": "labeled", "CUTOFF_LEN": "cutoff_length"}
_NUMBERS |= {"DEBUG": "", "MAX_ERROR": ""}
_LABELS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
    "QUOTE_LABEL": "quote_labels",
}
_PAIRS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalbParameters:
    """The parameters of an evaluation, as in a .prm file.

    Attributes:
        labeled: whether the labels of brackets must match.
        cutoff_length: the most words in the sentences of the second summary.
        delete_labels: labels of brackets that do not count, and tags of leaves that are
            left out with their words.
        delete_labels_for_length: tags of leaves that do not count in the length that is
            compared with `cutoff_length`.
        quote_labels: tags of quotation marks; if only one of two trees leaves out a
            mark, because the tags differ, it is put back.
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

    def labels_match(self, one: str, other: str) -> bool:
        """Returns whether two labels or tags are equal or declared equal."""
        return one == other or _in(self.equal_labels, one, other)

    def words_match(self, one: str, other: str) -> bool:
        """Returns whether two words are equal or declared equal."""
        return one == other or _in(self.equal_words, one, other)


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
        UserError: the file cannot be read, or a parameter has no value.
    """
    values: dict[str, Any] = {}
    for number, line in enumerate(read_lines(path), 1):
        line = line.rstrip()
        if line.startswith("#") or len(line) < 3:  # EVALB's own rule
            continue
        # A line that begins with a space has no name.
        name, _, value = re.sub(r"\s+", " ", line, count=1).partition(" ")
        field = (_NUMBERS | _LABELS | _PAIRS).get(name)
        if field is None:
            _log.warning("%s:%d: EVALB has no parameter '%s'", path, number, name)
        elif not value:
            raise UserError(f"{path}:{number}: {name} needs a value")
        elif name in _NUMBERS:
            digits = re.match(r"[+-]?\d+", value)
            if digits is None:
                raise UserError(
                    f"{path}:{number}: {name} needs a number, not '{value}'"
                )
            values[field] = int(digits[0])
        elif name in _LABELS:
            values[field] = (*values.get(field, ()), value)
        elif len(pair := tuple(value.split())) == 2:
            values[field] = (*values.get(field, ()), pair)
        else:
            warning = "%s:%d: %s needs two values, not '%s'"
            _log.warning(warning, path, number, name, value)
    values.pop("", None)
    return EvalbParameters(**values)


def _in(pairs: tuple[tuple[str, str], ...], one: str, other: str) -> bool:
    """Returns whether a pair is there, in either order."""
    return (one, other) in pairs or (other, one) in pairs


VALID, ERROR, SKIP = 0, 1, 2  # EVALB's codes for the status of a sentence

# A leaf; the start of a constituent; its end; anything else, which is an error.
_ITEM = re.compile(
    r"\((?P<tag>[^\s()]*)\s+(?P<word>[^\s()]*)\)"
    r"|\((?P<label>[^\s()]*)|(?P<close>\))|(?P<stray>\S)",
    re.ASCII,
)
_QUOTES = ("'", '"', "/")
# The outermost bracket in a line, around other brackets.
_OUTER = re.compile(
    rf"^\s*\((?:{'|'.join(label for label in OUTER_LABELS if label)})?\s*(?=\()"
)
_FUNCTION = re.compile(r"[-=].*", re.DOTALL)  # is removed from a bracket's label


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SentenceScore:
    """The counts for one sentence.

    Attributes:
        length: number of words in the gold tree, as the parameters count them.
        status: VALID; ERROR if a tree cannot be read or the words differ; SKIP if the
            test tree has no words.
        matched: number of brackets in the test tree that the gold tree also has.
        gold: number of brackets in the gold tree.
        test: number of brackets in the test tree.
        crossing: number of brackets in the test tree that cross one in the gold tree.
        words: number of words that are not left out.
        tags: number of these words with the right tag.
        compared: whether both trees have the same words, so that their brackets were
            compared. EVALB does this even if one tree is unbalanced; it prints the
            counts and reports an ERROR.
    """

    length: int
    status: int
    gold: int
    test: int
    matched: int = 0
    crossing: int = 0
    words: int = 0
    tags: int = 0
    compared: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns EVALB's line; all counts are 0 if the trees are not compared."""
        gold, test = (self.gold, self.test) if self.compared else (0, 0)
        return {
            "length": self.length,
            "status": self.status,
            "recall": _percent(self.matched, gold),
            "precision": _percent(self.matched, test),
            "matched_brackets": self.matched,
            "gold_brackets": gold,
            "test_brackets": test,
            "cross_brackets": self.crossing,
            "words": self.words,
            "correct_tags": self.tags,
            "tagging_accuracy": _percent(self.tags, self.words),
        }


@dataclasses.dataclass(frozen=True)
class F1Report:
    """The scores of a test file, with one entry for every sentence, in order."""

    sentences: tuple[SentenceScore, ...]
    cutoff_length: int

    def summary(self, max_length: int | None = None) -> dict[str, Any]:
        """Returns EVALB's summary; rates are percentages.

        EVALB leaves out sentences in error and skipped sentences in all rates. If
        nothing matches, EVALB's F1 is NaN; here it is 0.

        `f1_errors_as_zero` is F1 over valid sentences and sentences in error, where the
        brackets of a sentence in error count, and none of them matches. (Of a damaged
        tree, the readable brackets count.) Skipped sentences are left out.

        Args:
            max_length: the most words in the summarized sentences; None: all.
        """
        chosen = [
            s for s in self.sentences if max_length is None or s.length <= max_length
        ]
        valid = [s for s in chosen if s.status == VALID]
        matched = sum(s.matched for s in valid)
        words = sum(s.words for s in valid)
        gold, test = sum(s.gold for s in valid), sum(s.test for s in valid)
        recall, precision = _percent(matched, gold), _percent(matched, test)
        crossing = sum(s.crossing for s in valid)
        complete = sum(s.matched == s.gold == s.test for s in valid)
        return {
            "sentences": len(chosen),
            "error": sum(s.status == ERROR for s in chosen),
            "skip": sum(s.status == SKIP for s in chosen),
            "valid": len(valid),
            "recall": recall,
            "precision": precision,
            "f1": bracket_f1(matched, gold, test),
            "f1_errors_as_zero": _percent(
                2 * matched, sum(s.gold + s.test for s in chosen if s.status != SKIP)
            ),
            "complete_match": _percent(complete, len(valid)),
            "average_crossing": crossing / len(valid) if valid else 0.0,
            "no_crossing": _percent(sum(not s.crossing for s in valid), len(valid)),
            "two_or_less_crossing": _percent(
                sum(s.crossing <= 2 for s in valid), len(valid)
            ),
            "tagging_accuracy": _percent(sum(s.tags for s in valid), words),
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns both summaries (`all`, `len_le_40`) and `per_sentence`."""
        return {
            "all": self.summary(),
            f"len_le_{self.cutoff_length}": self.summary(self.cutoff_length),
            "per_sentence": [sentence.to_dict() for sentence in self.sentences],
        }


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
    scores = (
        _score(_Sentence(one, parameters), _Sentence(other, parameters), parameters)
        for one, other in zip(gold, test, strict=True)
    )
    return F1Report(tuple(scores), parameters.cutoff_length)


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
        UserError: a file cannot be read, the numbers of trees differ, or a tree of a
            treebank is bad.
    """
    paths = gold, test
    treebanks = [is_treebank(path) for path in paths]
    theirs, ours = (
        [tree.format() for tree in read_trees(path)]
        if prepared
        else list(read_lines(path))
        for path, prepared in zip(paths, treebanks, strict=True)
    )
    if any(treebanks):
        theirs, ours = (
            [_OUTER.sub(f"({OUTER} ", t) for t in s] for s in (theirs, ours)
        )
    if len(theirs) != len(ours):
        kinds = ["trees" if prepared else "lines" for prepared in treebanks]
        raise UserError(
            f"{gold} has {len(theirs)} {kinds[0]} and {test} has {len(ours)} "
            f"{kinds[1]}; number n of one must belong to number n of the other"
        )
    for path, lines in zip(paths, (theirs, ours), strict=True):
        readable = [_Sentence(line, parameters).readable for line in lines]
        if not all(readable):
            _log.warning(
                "%s: %d of %d lines are not trees, the first of them line %d; EVALB "
                "counts them as errors, or skips them if they have no words",
                *(path, readable.count(False), len(lines), readable.index(False) + 1),
            )
    return evaluate_trees(theirs, ours, parameters)


@dataclasses.dataclass(slots=True)
class _Bracket:
    """A constituent over the words from `start` to `end` - 1."""

    label: str
    start: int
    end: int = -1


@dataclasses.dataclass(slots=True)
class _Quote:
    """A leaf that may be a quotation mark, whether it is left out or not."""

    tag: str
    word: str
    index: int  # index of the next word that is not left out
    next_bracket: int  # index of the first bracket that begins after it
    around: tuple[int, ...]  # indices of the brackets around it


class _Sentence:
    """A line as EVALB reads it."""

    def __init__(self, text: str, parameters: EvalbParameters) -> None:
        self.tags: list[str] = []
        self.words: list[str] = []
        self.brackets: list[_Bracket] = []
        self.quotes: list[_Quote] = []
        self.length = 0
        self.readable = True
        stack: list[int] = []
        for item in _ITEM.finditer(text):
            if item["word"] is not None:
                tag, word = item["tag"], item["word"]
                self.length += tag not in parameters.delete_labels_for_length
                if tag in parameters.quote_labels and word in _QUOTES:
                    place = len(self.words), len(self.brackets), tuple(stack)
                    self.quotes.append(_Quote(tag, word, *place))
                if tag not in parameters.delete_labels:
                    self.tags.append(tag)
                    self.words.append(word)
            elif item["label"] is not None:
                stack.append(len(self.brackets))
                self.brackets.append(_Bracket(item["label"], len(self.words)))
            elif item["close"] and stack:
                self.brackets[stack.pop()].end = len(self.words)
            else:
                self.readable = False
        self.readable &= not stack

    def put_back(self, number: int) -> None:
        """Puts back a quotation mark that was left out."""
        quote = self.quotes[number]
        self.tags.insert(quote.index, quote.tag)
        self.words.insert(quote.index, quote.word)
        for bracket in self.brackets[quote.next_bracket :]:
            bracket.start += 1
            bracket.end += 1
        for outer in quote.around:
            self.brackets[outer].end += 1
        for later in self.quotes[number:]:
            later.index += 1

    def counted(self, parameters: EvalbParameters) -> list[_Bracket]:
        """Returns the brackets that count, without their function tags."""
        cut = (
            _Bracket(_FUNCTION.sub("", b.label), b.start, b.end)
            for b in self.brackets
            if b.start != b.end
        )
        deleted, match = parameters.delete_labels, parameters.labels_match
        return [b for b in cut if not any(match(b.label, d) for d in deleted)]


def _score(
    gold: _Sentence, test: _Sentence, parameters: EvalbParameters
) -> SentenceScore:
    """Compares the two trees for one sentence."""
    if test.words and len(gold.words) != len(test.words):
        _reconcile_quotes(gold, test, parameters)
    gold_brackets, test_brackets = gold.counted(parameters), test.counted(parameters)
    same_words = len(gold.words) == len(test.words) and all(
        map(parameters.words_match, gold.words, test.words)
    )
    counts: dict[str, int] = {}
    compared = bool(test.words) and same_words
    if compared:
        counts = {
            "matched": _matched(gold_brackets, test_brackets, parameters),
            "crossing": _crossing(gold_brackets, test_brackets),
            "words": len(gold.words),
            "tags": sum(map(parameters.labels_match, gold.tags, test.tags)),
        }
    is_valid = compared and gold.readable and test.readable
    return SentenceScore(
        length=gold.length,
        status=VALID if is_valid else ERROR if test.words else SKIP,
        gold=len(gold_brackets),
        test=len(test_brackets),
        compared=compared,
        **counts,
    )


def _matched(
    gold: list[_Bracket], test: list[_Bracket], parameters: EvalbParameters
) -> int:
    """Counts matching brackets: each gold bracket uses up the first that matches."""
    left: dict[tuple[int, int], list[str]] = {}
    for bracket in test:
        left.setdefault((bracket.start, bracket.end), []).append(bracket.label)
    matched = 0
    for bracket in gold:
        labels = left.get((bracket.start, bracket.end), [])
        for position, label in enumerate(labels):
            if not parameters.labeled or parameters.labels_match(bracket.label, label):
                del labels[position]
                matched += 1
                break
    return matched


def _crossing(gold: list[_Bracket], test: list[_Bracket]) -> int:
    """Counts the test brackets that overlap a gold one without nesting."""
    spans = {(bracket.start, bracket.end) for bracket in gold}
    return sum(
        any(
            start < bracket.start < end < bracket.end
            or bracket.start < start < bracket.end < end
            for start, end in spans
        )
        for bracket in test
    )


def _reconcile_quotes(
    gold: _Sentence, test: _Sentence, parameters: EvalbParameters
) -> None:
    """Puts back the quotation marks that one tree leaves out and the other keeps."""
    deleted = parameters.delete_labels
    for number, quote in enumerate(test.quotes):
        index = quote.index
        for other_number, other in enumerate(gold.quotes):
            if other.index != index or other.tag == quote.tag:
                continue
            if other.tag in deleted and quote.tag not in deleted:
                gold.put_back(other_number)
            elif quote.tag in deleted and other.tag not in deleted:
                test.put_back(number)


def bracket_f1(matched: float, gold: float, test: float) -> float:
    """Returns F1 from the numbers of brackets, in percent; 0 if nothing matches."""
    recall, precision = _percent(matched, gold), _percent(matched, test)
    both = precision + recall
    return 2 * precision * recall / both if both else 0.0


def _percent(part: float, whole: float) -> float:
    """Returns 100 part / whole, or 0 if `whole` is 0."""
    return 100.0 * part / whole if whole else 0.0


_HEAD = (
    "  Sent.                        Matched  Bracket   Cross        Correct Tag\n"
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy\n"
)
_RULE = "=" * 76 + "\n"
_SUMMARY = (
    "\n-- {title} --\n"
    "Number of sentence        = {sentences:6d}\n"
    "Number of Error sentence  = {error:6d}\n"
    "Number of Skip  sentence  = {skip:6d}\n"
    "Number of Valid sentence  = {valid:6d}\n"
    "Bracketing Recall         = {recall:6.2f}\n"
    "Bracketing Precision      = {precision:6.2f}\n"
    "Bracketing FMeasure       = {f1:>6}\n"
    "Complete match            = {complete_match:6.2f}\n"
    "Average crossing          = {average_crossing:6.2f}\n"
    "No crossing               = {no_crossing:6.2f}\n"
    "2 or less crossing        = {two_or_less_crossing:6.2f}\n"
    "Tagging accuracy          = {tagging_accuracy:6.2f}\n"
)


def evalb_report(result: dict[str, Any]) -> str:
    """Formats a report as EVALB prints it, to the last space.

    Args:
        result: the result of `F1Report.to_dict`.
    """
    rows = (
        f"{number:4d}  {s['length']:3d}    {s['status']:d}  "
        f"{s['recall']:6.2f} {s['precision']:6.2f}   "
        f"{s['matched_brackets']:3d}    {s['gold_brackets']:3d}  "
        f"{s['test_brackets']:3d}    {s['cross_brackets']:3d}   "
        f"{s['words']:4d}  {s['correct_tags']:4d}   {s['tagging_accuracy']:6.2f}\n"
        for number, s in enumerate(result["per_sentence"], 1)
    )
    blocks = (
        _SUMMARY.format(title=title, **summary | {"f1": _f1(summary)})
        for title, summary in summaries(result)
    )
    body = [*rows, _RULE, _totals(result), "=== Summary ===\n", *blocks]
    return "".join([_HEAD, _RULE, *body])


def summaries(result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Returns the summaries under EVALB's titles: `All`, `len<=40`."""
    return [
        ("All" if name == "all" else name.replace("len_le_", "len<="), summary)
        for name, summary in result.items()
        if name != "per_sentence"
    ]


def _f1(summary: dict[str, Any]) -> str:
    """Formats F1; 0 / 0 is formatted as C does."""
    nothing_matched = not summary["recall"] and not summary["precision"]
    return "-nan" if nothing_matched else f"{summary['f1']:.2f}"


def _totals(result: dict[str, Any]) -> str:
    """Returns the line under the table, for the valid sentences only."""
    valid = [s for s in result["per_sentence"] if s["status"] == VALID]
    kinds = ("matched_brackets", "gold_brackets", "test_brackets", "cross_brackets")
    matched, gold, test, cross, words, tags = (
        sum(s[name] for s in valid) for name in (*kinds, "words", "correct_tags")
    )
    every = result["all"]
    brackets = (
        f"                {every['recall']:6.2f} {every['precision']:6.2f} "
        f"{matched:6d} {gold:5d} {test:5d}  {cross:5d}"
    )
    line = f"  {words:5d} {tags:5d}   {every['tagging_accuracy']:6.2f}\n"
    return brackets + line if gold and test else line
