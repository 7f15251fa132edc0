"""The report that the EVALB program prints, made of the figures of `bracket_f1`."""

from typing import Any

from t2t_keras.evaluation.bracket_f1 import VALID

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
        result: of `F1Report.to_dict`.
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
