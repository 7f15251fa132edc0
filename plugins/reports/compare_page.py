"""The page of `t2t compare`, and the rows of its tables.

The page shows the sentences on which systems differ most.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.console import short_number
from t2t_keras.pages import templates

from .systems import Texts
from .text_differences import mark_differences

if TYPE_CHECKING:
    from .significance import Comparison, SentenceDifference, SystemResult

PAGE_SENTENCES = 50


def difference_page(texts: Texts, comparison: "Comparison", tests: str) -> str:
    """Returns the HTML page of the sentences on which systems differ most.

    Args:
        texts: the outputs.
        comparison: the scores.
        tests: what the columns of p-values are.
    """
    names = _short_names([system.name for system in texts.systems])
    shown = comparison.differences[:PAGE_SENTENCES]
    differing = len(comparison.differences)
    count = "all" if len(shown) == differing else f"the first {len(shown)}"
    remarks = [f"{tests}."]
    tables = {}
    for name, result in comparison.metrics.items():
        remarks.extend(incomparable_sentences(name, result["systems"]))
        tables[f"{name} {result['signature']}"] = score_rows(name, result["systems"])
    return (
        templates(Path(__file__).parent)
        .get_template("compare.html")
        .render(
            title=f"{', '.join(names[1:])} against {names[0]}",
            baseline=names[0],
            tables=tables,
            remarks=" ".join(remarks),
            metric=next(iter(comparison.metrics)),
            differing=differing,
            total=len(texts.references),
            count=count,
            sentences=[(x, _sentence_texts(names, texts, x)) for x in shown],
        )
    )


def _sentence_texts(
    names: Sequence[str], texts: Texts, difference: "SentenceDifference"
) -> list[tuple[str, str]]:
    """Returns the source, the reference and the marked outputs of a sentence."""
    index = difference.sentence
    rows = [("source", texts.sources[index])] if texts.sources else []
    rows.append(("reference", texts.references[index]))
    baseline, *compared = [system.outputs[index] for system in texts.systems]
    outputs = [baseline, *(mark_differences(baseline, text) for text in compared)]
    for name, output, score in zip(names, outputs, difference.scores, strict=True):
        rows.append((f"{name}: {short_number(score)}", output))
    return rows


def score_rows(metric: str, results: "Sequence[SystemResult]") -> list[dict[str, str]]:
    """Formats the rows of a metric's table, without tests of what is incomparable."""
    from .significance import incomparable

    baseline = results[0]["score"]
    is_tested = []
    for result in results:
        is_tested.append(not incomparable(metric, [baseline, result["score"]]))
    is_tested[0] = any(is_tested[1:])
    is_large = max(abs(result["score"]) for result in results) > 2
    shown = "{:.2f}".format if is_large else short_number
    has_engines = any("engine" in result for result in results)
    names = _short_names([result["system"] for result in results])
    rows = []
    for name, result, has_tests in zip(names, results, is_tested, strict=True):
        row = {"system": name}
        if has_engines:
            row["engine"] = result.get("engine", "")
        row["score"] = shown(result["score"])
        rows.append(row)
        if not any(is_tested):
            continue
        low = shown(result["mean"] - result["ci"])
        high = shown(result["mean"] + result["ci"])
        row["95% interval"] = f"{low} to {high}" if has_tests else ""
        row |= dict.fromkeys(("difference", "p (bs)", "p (ar)"), "")
        if has_tests and "difference" in result:
            sign = "+" if result["difference"] >= 0 else ""
            row["difference"] = sign + shown(result["difference"])
            row["p (bs)"] = short_number(round(result["p_bootstrap"], 4))
            row["p (ar)"] = short_number(round(result["p_randomization"], 4))
    return rows


def incomparable_sentences(metric: str, results: "Sequence[SystemResult]") -> list[str]:
    """Returns a sentence for each system that cannot be compared with the first."""
    from .significance import incomparable

    names = _short_names([result["system"] for result in results])
    sentences = []
    for name, result in zip(names[1:], results[1:], strict=True):
        if reason := incomparable(metric, [results[0]["score"], result["score"]]):
            sentences.append(f"{names[0]} and {name} {reason}.")
    return sentences


def _short_names(systems: Sequence[str]) -> list[str]:
    """Returns the paths without their common directories."""
    common = os.path.commonpath([Path(system).absolute().parent for system in systems])
    return [os.path.relpath(system, common) for system in systems]
