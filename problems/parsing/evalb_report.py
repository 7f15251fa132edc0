"""The report that EVALB prints."""

from .evalb_scores import VALID, ReportDict, Row

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
