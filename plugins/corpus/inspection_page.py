"""The inspection of a corpus as a self-contained HTML page."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 sans-serif; margin: 0 auto; padding: 1rem; max-width: 60rem }}
body {{ overflow-wrap: anywhere }}
h1 {{ font-size: 1.4rem }}
h2 {{ font-size: 1.1rem; margin-top: 2rem }}
table {{ border-collapse: collapse; margin: 0.5rem 0 }}
caption {{ text-align: left; font-weight: bold }}
th, td {{ padding: 0.1rem 1rem 0.1rem 0; text-align: right; vertical-align: top }}
th {{ text-align: left; font-weight: normal }}
thead th {{ text-align: right; opacity: 0.7 }}
meter {{ width: 8rem; vertical-align: middle }}
</style>
<h1>{title}</h1>
<h2>Findings</h2>
{findings}
{splits}
</html>
"""


def inspection_page(
    title: str, findings: Sequence[str], splits: Mapping[str, Mapping[str, Any]]
) -> str:
    """Returns an HTML page with the findings, and with a section for every split.

    Args:
        title: the title.
        findings: a sentence for each.
        splits: the "splits" that `data.inspection.inspect` has returned.
    """
    items = "\n".join(f"<li>{html.escape(text)}</li>" for text in findings)
    return _PAGE.format(
        title=html.escape(title),
        findings=f"<ol>\n{items}\n</ol>" if items else "<p>No faults were found.</p>",
        splits="\n".join(_section(*split) for split in splits.items()),
    )


def _section(name: str, split: Mapping[str, Any]) -> str:
    """Returns the section of a split."""
    sides = [split["source"], split["target"]]
    pairs = max(split["pairs"], 1)
    ratio = split["target_characters_per_source_character"]
    rows: list[tuple[str, Sequence[str]]] = [
        ("words", [f"{side['words']:,}" for side in sides]),
        ("words for each text", [f"{side['words'] / pairs:.1f}" for side in sides]),
        ("characters", [f"{side['characters']:,}" for side in sides]),
        (
            "characters for each text",
            [f"{side['characters'] / pairs:.1f}" for side in sides],
        ),
        ("scripts of letters", [_shares(side["scripts"]) for side in sides]),
    ]
    if sides[0]["languages"] is not None:
        guesses = [_shares(side["languages"]) for side in sides]
        rows.append(("languages, as guessed", guesses))
    if "vocabulary" in sides[0]:
        uses = [side["vocabulary"] for side in sides]
        rows += [
            ("tokens in the vocabulary", [f"{use['tokens']:,}" for use in uses]),
            ("of which occur", [f"{use['used']:.1%}" for use in uses]),
            ("tokens for each word", [f"{use['per_word']:.2f}" for use in uses]),
            ("unknown or bytes", [f"{use['unknown']:.3%}" for use in uses]),
        ]
    return (
        f"<h2>{html.escape(name)}: {split['pairs']:,} pairs</h2>\n"
        f"<p>Targets have {ratio:.2f} characters for each source character.</p>\n"
        f"{_html_table('', rows)}\n{_histograms(sides)}"
    )


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items()) or "-"


def _histograms(sides: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table of the lengths of texts."""
    histograms = [side["histogram"] for side in sides]
    total = max(sum(histograms[0].values()), 1)

    def cell(count: int) -> str:
        return f'{count:,} <meter value="{count / total:.4f}"></meter>'

    rows = [
        (label, [cell(histogram[label]) for histogram in histograms])
        for label in histograms[0]
    ]
    return _html_table("Texts by their number of characters", rows, is_html=True)


def _html_table(
    caption: str, rows: Sequence[tuple[str, Sequence[str]]], is_html: bool = False
) -> str:
    """Returns a table with a column for the sources and one for the targets."""
    body = "\n".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(f"<td>{c if is_html else html.escape(c)}</td>" for c in cells)
        + "</tr>"
        for name, cells in rows
    )
    return (
        f"<table><caption>{html.escape(caption)}</caption>\n<thead><tr><td></td>"
        f'<th scope="col">source</th><th scope="col">target</th></tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table>"
    )
