"""The inspection of a corpus as a self-contained HTML page."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.errors import quantity
from t2t_keras.pages import html_page
from t2t_keras.problem import Pair, Source

from .cleaned_copy import HEADER, actions_of, default_recipe, read_pairs_at
from .findings import Finding
from .inspection import PairFault, is_train

MAX_PAIRS = 200  # that are shown for each fault of a split
_MAX_CHARACTERS = 400  # of a text that are shown

_WORDS = {
    "drop": "leave them out",
    "keep": "keep them as they are",
    "exchange": "exchange source and target",
    "unescape": "undo the entities",
}


class FaultyPairs(NamedTuple):
    """The pairs of a split that have one fault, and those of them that are shown.

    Attributes:
        split: the name of the split.
        fault: the name of the fault.
        messages: what is reported of it.
        pairs: number of pairs.
        shown: the first ones, by their numbers from 1.
        weight: how bad the fault is, see `Finding`.
    """

    split: str
    fault: str
    messages: list[str]
    pairs: int
    shown: dict[int, Pair]
    weight: float


def faulty_pairs(
    name: str, source: Source, faults: Sequence[PairFault]
) -> list[FaultyPairs]:
    """Returns the faulty pairs of a split with their texts, the worst fault first.

    Args:
        name: the name of the split.
        source: its pairs.
        faults: its faults.
    """
    by_name: dict[str, list[PairFault]] = {}
    for fault in sorted(faults, key=lambda x: x.finding.weight, reverse=True):
        by_name.setdefault(fault.finding.kind, []).append(fault)
    indices: dict[str, list[int]] = {}
    for fault_name, group in by_name.items():
        # A source may be both in dev and in test.
        merged = {int(index) for fault in group for index in fault.indices}
        indices[fault_name] = sorted(merged)
    shown = [index for row in indices.values() for index in row[:MAX_PAIRS]]
    pairs = read_pairs_at(source, shown)
    results = []
    for fault_name, group in by_name.items():
        messages = [_heading(fault.finding) for fault in group]
        numbered = {}
        for index in indices[fault_name][:MAX_PAIRS]:
            if index in pairs:
                numbered[index + 1] = pairs[index]
        count = len(indices[fault_name])
        weight = group[0].finding.weight  # the greatest one
        results.append(FaultyPairs(name, fault_name, messages, count, numbered, weight))
    return results


def _heading(finding: Finding) -> str:
    """Returns a finding without its lines and its remedy, which the page offers."""
    return (
        f"{finding.split}: {finding.message}: {quantity(finding.pairs, 'pairs')} "
        f"({finding.share:.2%})"
    )


def faulty_pairs_section(faulty: FaultyPairs, section: int) -> str:
    """Returns the section of one fault of a split.

    Args:
        faulty: the pairs.
        section: its number on the page, on which the first section is open.
    """
    default = default_recipe(is_train(faulty.split)).actions[faulty.fault]
    options = []
    for action in actions_of(faulty.fault):
        selected = " selected" if action == default else ""
        options.append(f'<option value="{action}"{selected}>{_WORDS[action]}</option>')
    rows = []
    for line, pair in faulty.shown.items():
        rows.append(_row(line, pair))
    count = len(faulty.shown)
    summary = f"Show {'the pair' if faulty.pairs == 1 else f'{count:,} pairs'}"
    if faulty.pairs > count:
        summary = f"Show the first {count:,} of {faulty.pairs:,} pairs"
    messages = "".join(f"<h3>{html.escape(text)}</h3>" for text in faulty.messages)
    nouns = "this pair" if faulty.pairs == 1 else f"these {faulty.pairs:,} pairs"
    return (
        f'<article data-split="{html.escape(faulty.split)}" '
        f'data-fault="{faulty.fault}" id="fault-{section}">\n{messages}\n'
        f"<p><label>With {nouns}: <select>{''.join(options)}</select></label></p>\n"
        f"<details{' open' * (section == 1)}><summary>{summary}</summary>\n"
        '<table><thead><tr><th scope="col">Line</th><th scope="col">Source</th>'
        '<th scope="col">Target</th></tr></thead>\n'
        f"<tbody>\n{''.join(rows)}</tbody></table></details>\n</article>"
    )


def _row(line: int, pair: Pair) -> str:
    """Returns the row of a pair, which is ticked: the action holds for it."""
    cells = []
    for text in pair:
        shown = text.strip()
        if len(shown) > _MAX_CHARACTERS:
            shown = f"{shown[:_MAX_CHARACTERS]} …"
        shown = shown.encode("utf-8", "replace").decode()  # without lone surrogates
        cells.append(f'<td dir="auto">{html.escape(shown)}</td>')
    return (
        f'<tr><td><label><input type="checkbox" checked value="{line}"> {line:,}'
        f"</label></td>{''.join(cells)}</tr>\n"
    )


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
        splits="\n".join(_split_section(*split) for split in splits.items()),
    )
    file = Path(__file__)
    style = file.with_suffix(".css").read_text(encoding="utf-8")
    script = file.with_suffix(".js").read_text(encoding="utf-8")
    return html_page(title, body, style, script)


def _split_section(name: str, split: Mapping[str, Any]) -> str:
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
