"""EVALB: F1 of labelled brackets as the EVALB program computes and prints it.

Every rule here is EVALB's, its odd ones included, so that scores compare with
published ones. Its fixed sizes (200 words or brackets a sentence, 5,000 bytes a line)
and its stop after MAX_ERROR errors are left out. The file has three parts: the
parameters (.prm files), the scores, and the report.
"""

import dataclasses
import io
import logging
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.parsing.tree import OUTER, OUTER_LABELS
from t2t_keras.parsing.treebank import is_treebank, open_binary, read_trees

_log = logging.getLogger(__name__)

_INTEGERS = ("DEBUG", "MAX_ERROR", "CUTOFF_LEN", "LABELED")
_LABELS = ("DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL")
_PAIRS = ("EQ_LABEL", "EQ_WORD")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalbParameters:
    """The parameters of an evaluation, as in a .prm file.

    Attributes:
        labeled: whether a bracket's label must match, too.
        cutoff_length: the second summary is of sentences of at most so many words.
        delete_labels: brackets of these labels do not count; leaves with these tags
            are left out together with their words.
        delete_labels_for_length: leaves with these tags do not count in the length
            that decides on the second summary.
        quote_labels: tags of a quotation mark; where only one of two trees leaves the
            mark out, because they disagree on its tag, it is put back.
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
        """Whether two labels or tags are equal or declared so."""
        return one == other or _in(self.equal_labels, one, other)

    def words_match(self, one: str, other: str) -> bool:
        """Whether two words are equal or declared so."""
        return one == other or _in(self.equal_words, one, other)

    def deletes_bracket(self, label: str) -> bool:
        """Whether a bracket of this label does not count."""
        return any(self.labels_match(label, deleted) for deleted in self.delete_labels)


# COLLINS.prm, the convention of the Penn Treebank's published results.
COLLINS = EvalbParameters(
    delete_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    delete_labels_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)


def read_parameters(path: str | Path) -> EvalbParameters:
    """Reads a .prm file.

    DEBUG and MAX_ERROR are read and have no effect: nothing stops an evaluation. What
    EVALB warns of and leaves out, an unknown parameter or a pair that is none, is left
    out here with a warning, too. A number is what a value begins with.

    Raises:
        UserError: the file cannot be read, or a parameter has no value.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a .prm file ({error})") from None
    values: dict[str, list[str]] = {
        name: [] for name in (*_INTEGERS, *_LABELS, *_PAIRS)
    }
    for number, line in enumerate(lines, 1):
        line = line.rstrip()
        if line.startswith("#") or len(line) < 3:  # EVALB's own rule
            continue
        # A line that begins with a space has no name.
        name, _, value = re.sub(r"\s+", " ", line, count=1).partition(" ")
        if name not in values:
            _log.warning("%s:%d: EVALB has no parameter '%s'", path, number, name)
            continue
        if not value:
            raise UserError(f"{path}:{number}: {name} needs a value")
        if name in _INTEGERS:
            digits = re.match(r"[+-]?\d+", value)
            if digits is None:
                raise UserError(
                    f"{path}:{number}: {name} needs a number, not '{value}'"
                )
            value = digits[0]
        if name in _PAIRS and len(value.split()) != 2:
            _log.warning(
                "%s:%d: %s needs two values, not '%s'", path, number, name, value
            )
            continue
        values[name].append(value)
    return EvalbParameters(
        labeled=int((values["LABELED"] or ["1"])[-1]) != 0,
        cutoff_length=int((values["CUTOFF_LEN"] or ["40"])[-1]),
        delete_labels=tuple(values["DELETE_LABEL"]),
        delete_labels_for_length=tuple(values["DELETE_LABEL_FOR_LENGTH"]),
        quote_labels=tuple(values["QUOTE_LABEL"]),
        equal_labels=_pairs(values["EQ_LABEL"]),
        equal_words=_pairs(values["EQ_WORD"]),
    )


def _pairs(values: list[str]) -> tuple[tuple[str, str], ...]:
    """Splits values of two words each."""
    return tuple((one, other) for one, other in map(str.split, values))


def _in(pairs: tuple[tuple[str, str], ...], one: str, other: str) -> bool:
    """Whether a pair is there in either order."""
    return (one, other) in pairs or (other, one) in pairs


VALID, ERROR, SKIP = 0, 1, 2  # EVALB's statuses of a sentence

# A leaf; the beginning of a constituent; its end; anything else, which is an error.
_ITEM = re.compile(
    r"\((?P<tag>[^\s()]*)\s+(?P<word>[^\s()]*)\)"
    r"|\((?P<label>[^\s()]*)|(?P<close>\))|(?P<stray>\S)",
    re.ASCII,
)
_QUOTES = ("'", '"', "/")
# The outermost bracket of a line, around other brackets.
_OUTER = re.compile(
    rf"^\s*\((?:{'|'.join(label for label in OUTER_LABELS if label)})?\s*(?=\()"
)
_FUNCTION = re.compile(r"[-=].*", re.DOTALL)  # what is cut from a bracket's label


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SentenceScore:
    """One sentence's counts.

    Attributes:
        length: words of the gold tree, as the parameters count them.
        status: VALID; ERROR: a tree cannot be read or the words of the two differ;
            SKIP: the test tree has no words.
        matched: brackets of the test tree that the gold tree has.
        gold: brackets of the gold tree.
        test: brackets of the test tree.
        crossing: brackets of the test tree that cross one of the gold tree.
        words: words that are not left out.
        tags: of these, how many have the right tag.
        compared: whether the words of both trees are the same, so that the counts are
            of brackets that were compared. EVALB compares such trees even if one of
            them is not balanced, prints the counts and calls it an ERROR.
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
        """Returns EVALB's line; all is zero in a sentence that is not compared."""
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
    """The scores of a test file: every sentence's, in order."""

    sentences: tuple[SentenceScore, ...]
    cutoff_length: int

    def summary(self, max_length: int | None = None) -> dict[str, Any]:
        """Returns EVALB's summary; rates are percentages.

        EVALB leaves sentences in error and skipped sentences out of every rate.
        EVALB's F1 is not a number where nothing matches; here it is 0.

        `f1_errors_as_zero` is F1 over the valid sentences and those in error: of an
        error, the brackets of both trees count and none of them matches. (Of a tree
        that cannot be read, the brackets that can.) Skipped sentences stay left out.

        Args:
            max_length: of the sentences to summarise; None for all.
        """
        chosen = [
            s for s in self.sentences if max_length is None or s.length <= max_length
        ]
        valid = [s for s in chosen if s.status == VALID]
        matched = sum(s.matched for s in valid)
        words = sum(s.words for s in valid)
        gold, test = sum(s.gold for s in valid), sum(s.test for s in valid)
        recall, precision = _percent(matched, gold), _percent(matched, test)
        both = precision + recall
        crossing = sum(s.crossing for s in valid)
        complete = sum(s.matched == s.gold == s.test for s in valid)
        return {
            "sentences": len(chosen),
            "error": sum(s.status == ERROR for s in chosen),
            "skip": sum(s.status == SKIP for s in chosen),
            "valid": len(valid),
            "recall": recall,
            "precision": precision,
            "f1": 2 * precision * recall / both if both else 0.0,
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
        gold: a tree a line; an empty line is a sentence, too.
        test: likewise.
        parameters: what is left out and what is taken for equal.

    Raises:
        UserError: the numbers of trees differ.
    """
    if len(gold) != len(test):
        raise UserError(
            f"there are {len(gold)} gold trees and {len(test)} test trees; line n of "
            "one must belong to line n of the other"
        )
    return _report(_read(gold, parameters), _read(test, parameters), parameters)


def evaluate_files(
    gold: str | Path, test: str | Path, parameters: EvalbParameters = COLLINS
) -> F1Report:
    """Scores a file of bracketed trees, one a line, against another.

    Either side may also be a treebank as it is published, a `.mrg` file (or `.mrg.gz`)
    or a directory of such: trees over several lines, with traces and an outer bracket
    without a label, which `tree.prepare` takes away. There an empty line is not a
    sentence. Beside a treebank, the outer bracket of a line is called TOP, too, if it
    has one of the names that treebanks give it. A warning tells of lines that are not
    trees.

    Raises:
        UserError: a file cannot be read, the numbers of trees differ, or a tree of a
            treebank is bad.
    """
    paths = gold, test
    treebanks = [is_treebank(path) for path in paths]
    theirs, ours = (
        [tree.format() for tree in read_trees(path)] if prepared else _lines(path)
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
    sides = _read(theirs, parameters), _read(ours, parameters)
    for path, sentences in zip((gold, test), sides, strict=True):
        bad = [n for n, s in enumerate(sentences, 1) if not s.readable]
        if bad:
            _log.warning(
                "%s: %d of %d lines are not trees, the first of them line %d; EVALB "
                "counts them as errors, or skips them if they have no words",
                *(path, len(bad), len(sentences), bad[0]),
            )
    return _report(*sides, parameters)


def _read(lines: Sequence[str], parameters: EvalbParameters) -> list["_Sentence"]:
    """Reads every line as EVALB does."""
    return [_Sentence(line, parameters) for line in lines]


def _report(
    gold: list["_Sentence"], test: list["_Sentence"], parameters: EvalbParameters
) -> F1Report:
    """Compares sentence by sentence."""
    scores = (_score(g, t, parameters) for g, t in zip(gold, test, strict=True))
    return F1Report(tuple(scores), parameters.cutoff_length)


def _lines(path: str | Path) -> list[str]:
    """Returns the lines of a file, plain or gzipped; the last one need not end."""
    try:
        with open_binary(path) as file:
            lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n")
            return [line.removesuffix("\n") for line in lines]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as trees ({error})") from None


@dataclasses.dataclass(slots=True)
class _Bracket:
    """A constituent over the words from `start` to before `end`."""

    label: str
    start: int
    end: int = -1


@dataclasses.dataclass(slots=True)
class _Quote:
    """A leaf that may be a quotation mark, left out or not."""

    tag: str
    word: str
    index: int  # of the next word that is not left out, where it stands
    next_bracket: int  # the first bracket to begin after it
    around: tuple[int, ...]  # the brackets that it stands in


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
                self._add_leaf(item["tag"], item["word"], tuple(stack), parameters)
            elif item["label"] is not None:
                stack.append(len(self.brackets))
                self.brackets.append(_Bracket(item["label"], len(self.words)))
            elif item["close"] and stack:
                self.brackets[stack.pop()].end = len(self.words)
            else:
                self.readable = False
        self.readable &= not stack

    def _add_leaf(
        self, tag: str, word: str, stack: tuple[int, ...], parameters: EvalbParameters
    ) -> None:
        """Counts a leaf, and keeps it unless its tag is left out."""
        if tag not in parameters.delete_labels_for_length:
            self.length += 1
        if tag in parameters.quote_labels and word in _QUOTES:
            place = len(self.words), len(self.brackets), stack
            self.quotes.append(_Quote(tag, word, *place))
        if tag not in parameters.delete_labels:
            self.tags.append(tag)
            self.words.append(word)

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
        """Returns the brackets that count, their function tags cut."""
        cut = (
            _Bracket(_FUNCTION.sub("", b.label), b.start, b.end)
            for b in self.brackets
            if b.start != b.end
        )
        return [b for b in cut if not parameters.deletes_bracket(b.label)]


def _score(
    gold: _Sentence, test: _Sentence, parameters: EvalbParameters
) -> SentenceScore:
    """Compares the trees of one sentence."""
    if test.words and len(gold.words) != len(test.words):
        _reconcile_quotes(gold, test, parameters)
    gold_brackets, test_brackets = gold.counted(parameters), test.counted(parameters)
    same_words = len(gold.words) == len(test.words) and all(
        map(parameters.words_match, gold.words, test.words)
    )
    if not test.words or not same_words:
        return SentenceScore(
            length=gold.length,
            status=ERROR if test.words else SKIP,
            gold=len(gold_brackets),
            test=len(test_brackets),
        )
    return SentenceScore(
        compared=True,
        length=gold.length,
        status=VALID if gold.readable and test.readable else ERROR,
        gold=len(gold_brackets),
        test=len(test_brackets),
        matched=_matched(gold_brackets, test_brackets, parameters),
        crossing=_crossing(gold_brackets, test_brackets),
        words=len(gold.words),
        tags=sum(map(parameters.labels_match, gold.tags, test.tags)),
    )


def _matched(
    gold: list[_Bracket], test: list[_Bracket], parameters: EvalbParameters
) -> int:
    """Counts matching brackets: each gold one takes the first that is left."""
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


def _percent(part: int, whole: int) -> float:
    """Returns 100 part / whole, and 0 of nothing."""
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
    """Returns what EVALB prints, to the last space.

    Args:
        result: what `F1Report.to_dict` returns.
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
    """Returns F1, or what C prints of 0 / 0."""
    nothing_matched = not summary["recall"] and not summary["precision"]
    return "-nan" if nothing_matched else f"{summary['f1']:.2f}"


def _totals(result: dict[str, Any]) -> str:
    """Returns the line under the table; sentences that are not valid count nothing."""
    valid = [s for s in result["per_sentence"] if s["status"] == VALID]
    names = ("gold", "test", "matched", "cross")
    gold, test, matched, cross = (
        sum(s[f"{name}_brackets"] for s in valid) for name in names
    )
    words, tags = (sum(s[name] for s in valid) for name in ("words", "correct_tags"))
    every = result["all"]
    brackets = (
        f"                {every['recall']:6.2f} {every['precision']:6.2f} "
        f"{matched:6d} {gold:5d} {test:5d}  {cross:5d}"
    )
    line = f"  {words:5d} {tags:5d}   {every['tagging_accuracy']:6.2f}\n"
    return brackets + line if gold and test else line
