"""The counts of EVALB for each sentence, their summaries, and its report."""

import dataclasses
from collections import Counter

# EVALB's codes for the status of a sentence.
VALID = 0
ERROR = 1
SKIP = 2

# Counts and percentages by name.
Row = dict[str, float]
ReportDict = dict[str, Row | list[Row]]  # the result of `F1Report.to_dict`


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

    def to_dict(self) -> Row:
        """Returns EVALB's line; all counts are 0 if the trees are not compared."""
        gold = self.gold if self.compared else 0
        test = self.test if self.compared else 0
        return {
            "length": self.length,
            "status": self.status,
            "recall": percent(self.matched, gold),
            "precision": percent(self.matched, test),
            "matched_brackets": self.matched,
            "gold_brackets": gold,
            "test_brackets": test,
            "cross_brackets": self.crossing,
            "words": self.words,
            "correct_tags": self.tags,
            "tagging_accuracy": percent(self.tags, self.words),
        }


@dataclasses.dataclass(frozen=True)
class F1Report:
    """The scores of a test file, with one entry for every sentence, in order."""

    sentences: tuple[SentenceScore, ...]
    cutoff_length: int

    def summary(self, max_length: int | None = None) -> Row:
        """Returns EVALB's summary; rates are percentages.

        EVALB leaves out sentences in error and skipped sentences in all rates. If
        nothing matches, EVALB's F1 is NaN; here it is 0.

        `f1_errors_as_zero` is F1 over valid sentences and sentences in error, where the
        brackets of a sentence in error count, and none of them matches. (Of a damaged
        tree, the readable brackets count.) Skipped sentences are left out.

        Args:
            max_length: maximum number of words in the sentences; None: no limit.
        """
        count = Counter[int]()  # of sentences, by their status
        complete = without_crossing = two_or_less_crossing = 0
        matched = gold = test = crossing = words = correct_tags = error_brackets = 0
        for sentence in self.sentences:
            if max_length is not None and sentence.length > max_length:
                continue
            count[sentence.status] += 1
            if sentence.status == ERROR:
                error_brackets += sentence.gold + sentence.test
            if sentence.status != VALID:
                continue
            matched += sentence.matched
            gold += sentence.gold
            test += sentence.test
            complete += sentence.matched == sentence.gold == sentence.test
            crossing += sentence.crossing
            without_crossing += sentence.crossing == 0
            two_or_less_crossing += sentence.crossing <= 2
            words += sentence.words
            correct_tags += sentence.tags
        valid = count[VALID]
        return {
            "sentences": count.total(),
            "error": count[ERROR],
            "skip": count[SKIP],
            "valid": valid,
            "recall": percent(matched, gold),
            "precision": percent(matched, test),
            "f1": bracket_f1(matched, gold, test),
            "f1_errors_as_zero": percent(2 * matched, gold + test + error_brackets),
            "complete_match": percent(complete, valid),
            "average_crossing": crossing / valid if valid else 0.0,
            "no_crossing": percent(without_crossing, valid),
            "two_or_less_crossing": percent(two_or_less_crossing, valid),
            "tagging_accuracy": percent(correct_tags, words),
        }

    def to_dict(self) -> ReportDict:
        """Returns both summaries (`all`, `len_le_40`) and `per_sentence`."""
        return {
            "all": self.summary(),
            f"len_le_{self.cutoff_length}": self.summary(self.cutoff_length),
            "per_sentence": [sentence.to_dict() for sentence in self.sentences],
        }


def bracket_f1(matched: float, gold: float, test: float) -> float:
    """Returns F1 from the numbers of brackets, in percent; 0 if nothing matches."""
    recall = percent(matched, gold)
    precision = percent(matched, test)
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def percent(part: float, total: float) -> float:
    """Returns 100 part / total, or 0 if the total is 0."""
    return 100.0 * part / total if total else 0.0


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


def evalb_report(result: ReportDict) -> str:
    """Formats a report as EVALB prints it, to the last space.

    Args:
        result: the result of `F1Report.to_dict`.
    """
    rows = sentence_rows(result)
    body = [_format_row(index, row) for index, row in enumerate(rows, 1)]
    body += [_RULE, _format_totals(result), "=== Summary ===\n"]
    for title, summary in summaries(result):
        body.append(_SUMMARY.format(title=title, **summary | {"f1": _f1(summary)}))
    return "".join([_HEAD, _RULE, *body])


def sentence_rows(result: ReportDict) -> list[Row]:
    """Returns the rows of the sentences."""
    rows = result["per_sentence"]
    assert isinstance(rows, list)
    return rows


def summaries(result: ReportDict) -> list[tuple[str, Row]]:
    """Returns the summaries under EVALB's titles: `All`, `len<=40`."""
    return [
        ("All" if name == "all" else name.replace("len_le_", "len<="), summary)
        for name, summary in result.items()
        if isinstance(summary, dict)
    ]


def _format_row(index: int, row: Row) -> str:
    return (
        f"{index:4d}  {row['length']:3d}    {row['status']:d}  "
        f"{row['recall']:6.2f} {row['precision']:6.2f}   "
        f"{row['matched_brackets']:3d}    {row['gold_brackets']:3d}  "
        f"{row['test_brackets']:3d}    {row['cross_brackets']:3d}   "
        f"{row['words']:4d}  {row['correct_tags']:4d}   "
        f"{row['tagging_accuracy']:6.2f}\n"
    )


def _f1(summary: Row) -> str:
    """Formats F1; 0 / 0 is formatted as C does."""
    nothing_matched = not summary["recall"] and not summary["precision"]
    return "-nan" if nothing_matched else f"{summary['f1']:.2f}"


def _format_totals(result: ReportDict) -> str:
    """Returns the line under the table, for the valid sentences only."""
    valid = [row for row in sentence_rows(result) if row["status"] == VALID]

    def total(name: str) -> float:
        return sum(row[name] for row in valid)

    (_, overall), *_ = summaries(result)
    tags = (
        f"  {total('words'):5d} {total('correct_tags'):5d}   "
        f"{overall['tagging_accuracy']:6.2f}\n"
    )
    if not (total("gold_brackets") and total("test_brackets")):
        return tags
    brackets = (
        f"                {overall['recall']:6.2f} {overall['precision']:6.2f} "
        f"{total('matched_brackets'):6d} {total('gold_brackets'):5d} "
        f"{total('test_brackets'):5d}  {total('cross_brackets'):5d}"
    )
    return brackets + tags
