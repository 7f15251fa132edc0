"""The faulty pairs of an inspection as HTML, with choices for a recipe."""

import html
from collections.abc import Sequence
from typing import NamedTuple

from t2t_keras.errors import quantity
from t2t_keras.problem import Pair, Source

from .cleaned_copy import read_pairs_at
from .findings import Finding
from .inspection import is_train
from .recipe import actions_of, default_recipe
from .split_inspection import PairFault

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
