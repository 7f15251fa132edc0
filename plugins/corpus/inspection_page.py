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


# What the report has of one side of a split.
SideStatistics = Mapping[str, Any]


def inspection_page(
    title: str, findings: Sequence[str], splits: Mapping[str, Mapping[str, Any]]
) -> str:
    """Returns an HTML page with the findings, and with a section for every split.

    Args:
        title: the title.
        findings: a sentence for each.
        splits: the "splits" of a `Report`.
    """
    items = "\n".join(f"<li>{html.escape(text)}</li>" for text in findings)
    return _PAGE.format(
        title=html.escape(title),
        findings=f"<ol>\n{items}\n</ol>" if items else "<p>No faults were found.</p>",
        splits="\n".join(_section(*split) for split in splits.items()),
    )


def _section(name: str, split: Mapping[str, Any]) -> str:
    """Returns the section of a split."""
    pairs = max(split["pairs"], 1)
    ratio = split["target_characters_per_source_character"]
    source = _side_cells(split["source"], pairs)
    target = _side_cells(split["target"], pairs)
    rows = [(label, (text, target[label])) for label, text in source.items()]
    return (
        f"<h2>{html.escape(name)}: {split['pairs']:,} pairs</h2>\n"
        f"<p>Targets have {ratio:.2f} characters for each source character.</p>\n"
        f"{_html_table('', rows)}\n"
        f"{_histograms(split['source']['histogram'], split['target']['histogram'])}"
    )


def _side_cells(side: SideStatistics, pairs: int) -> dict[str, str]:
    """Returns the texts of one column of the table of a split, by their labels."""
    cells = {
        "words": f"{side['words']:,}",
        "words for each text": f"{side['words'] / pairs:.1f}",
        "characters": f"{side['characters']:,}",
        "characters for each text": f"{side['characters'] / pairs:.1f}",
        "scripts of letters": _shares(side["scripts"]),
    }
    if side["languages"] is not None:
        cells["languages, as guessed"] = _shares(side["languages"])
    if "vocabulary" in side:
        use = side["vocabulary"]
        cells["tokens in the vocabulary"] = f"{use['tokens']:,}"
        cells["of which occur"] = f"{use['used']:.1%}"
        cells["tokens for each word"] = f"{use['per_word']:.2f}"
        cells["unknown or bytes"] = f"{use['unknown']:.3%}"
    return cells


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items()) or "-"


def _histograms(source: Mapping[str, int], target: Mapping[str, int]) -> str:
    """Returns the table of the lengths of texts."""
    total = max(sum(source.values()), 1)

    def cell(count: int) -> str:
        return f'{count:,} <meter value="{count / total:.4f}"></meter>'

    rows = []
    for label, count in source.items():
        rows.append((label, (cell(count), cell(target[label]))))
    return _html_table("Texts by their number of characters", rows, is_html=True)


def _html_table(
    caption: str, rows: Sequence[tuple[str, tuple[str, str]]], is_html: bool = False
) -> str:
    """Returns a table with a column for the sources and one for the targets."""
    body = []
    for label, cells in rows:
        source, target = cells if is_html else map(html.escape, cells)
        body.append(
            f'<tr><th scope="row">{html.escape(label)}</th><td>{source}</td>'
            f"<td>{target}</td></tr>"
        )
    lines = "\n".join(body)
    return (
        f"<table><caption>{html.escape(caption)}</caption>\n<thead><tr><td></td>"
        f'<th scope="col">source</th><th scope="col">target</th></tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody></table>"
    )
