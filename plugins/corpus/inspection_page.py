"""The inspection of a corpus as a self-contained HTML page."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.errors import quantity
from t2t_keras.pages import html_page

from .faulty_pairs import FaultyPairs, faulty_pairs_section
from .recipe import HEADER

_BODY = """\
<h1>{title}</h1>
<main>
<h2>Findings</h2>
{findings}
<section id="choices" hidden>
<h2>A cleaned copy</h2>
<p>Choose above what becomes of each fault, and untick pairs that are right. Save the
recipe, and run the command again with it:</p>
<pre><code>{command} --recipe recipe.toml --apply cleaned</code></pre>
<p><button type="button" class="main" id="save">Save recipe.toml</button></p>
<details><summary>The recipe</summary>
<pre id="recipe" tabindex="0" data-header="{header}"></pre></details>
</section>
{splits}
</main>
"""


# What the report has of one side of a split.
SideStatistics = Mapping[str, Any]


def inspection_page(
    title: str,
    command: str,
    findings: Sequence[str],
    faulty: Sequence[FaultyPairs],
    splits: Mapping[str, Mapping[str, Any]],
) -> str:
    """Returns an HTML page with the faulty pairs, and with a section for every split.

    Args:
        title: the title.
        command: the command that has written the page.
        findings: sentences about sources that cannot be read.
        faulty: the pairs that have faults, the worst first.
        splits: the "splits" of a `Report`.
    """
    sections = [f'<p class="error">{html.escape(text)}</p>' for text in findings]
    for section, group in enumerate(faulty, start=1):
        sections.append(faulty_pairs_section(group, section))
    body = _BODY.format(
        title=html.escape(title),
        command=html.escape(command),
        header=html.escape(HEADER),
        findings="\n".join(sections) or "<p>No faults were found.</p>",
        splits="\n".join(_section(*split) for split in splits.items()),
    )
    file = Path(__file__)
    style = file.with_suffix(".css").read_text(encoding="utf-8")
    script = file.with_suffix(".js").read_text(encoding="utf-8")
    return html_page(title, body, style, script)


def _section(name: str, split: Mapping[str, Any]) -> str:
    """Returns the section of a split."""
    pairs = max(split["pairs"], 1)
    ratio = split["target_characters_per_source_character"]
    source = _side_cells(split["source"], pairs)
    target = _side_cells(split["target"], pairs)
    rows = [(label, (text, target[label])) for label, text in source.items()]
    return (
        f"<h2>{html.escape(name)}: {quantity(split['pairs'], 'pairs')}</h2>\n"
        f"<p>Targets have {ratio:.2f} characters for each source character.</p>\n"
        f'<div class="split">{_html_table("Words and characters", rows)}\n'
        f"{_histograms(split['source']['histogram'], split['target']['histogram'])}"
        "</div>"
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
        f'<div class="scroll"><table><caption>{html.escape(caption)}</caption>\n'
        f"<thead><tr><td></td>"
        f'<th scope="col">source</th><th scope="col">target</th></tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody></table></div>"
    )
