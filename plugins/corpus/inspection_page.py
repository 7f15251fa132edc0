"""The page of an inspection: the faulty pairs, choices for a recipe, statistics."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.errors import quantity
from t2t_keras.pages import folded_command, templates
from t2t_keras.problem import Pair, Source

from .cleaned_copy import HEADER, actions_of, default_recipe, read_pairs_at
from .findings import Finding
from .inspection import Inspection, PairFault, is_train

MAX_PAIRS = 200  # that are shown for each fault of a split
_MAX_CHARACTERS = 400  # of a text that are shown

# The flags that make a cleaned copy.
_APPLY = ("--recipe", "recipe.toml", "--apply", "cleaned")

_WORDS = {
    "drop": "leave out",
    "keep": "keep",
    "exchange": "swap source and target",
    "unescape": "decode HTML entities",
}


class _FaultyPairs(NamedTuple):
    """The pairs of a split that have one fault, and those of them that are shown.

    Attributes:
        split: the name of the split.
        fault: the name of the fault.
        messages: what is reported of it.
        pairs: number of pairs.
        shown: the first ones, by their numbers from 1.
        weight: how bad the fault is, see `Finding`.
        actions: what a recipe may do with them.
        default: the action without a recipe.
    """

    split: str
    fault: str
    messages: list[str]
    pairs: int
    shown: dict[int, Pair]
    weight: float
    actions: tuple[str, ...]
    default: str


def inspection_page(
    title: str,
    command: Sequence[str],
    sources: Mapping[str, Source],
    inspection: Inspection,
) -> str:
    """Returns the page, which lets its reader choose what becomes of each fault.

    Args:
        title: its title.
        command: the words of the command that writes the page.
        sources: the sources, whose faulty pairs are read again.
        inspection: their inspection.
    """
    findings = []
    for values in inspection.report["findings"]:
        if not values["pairs"]:
            findings.append(str(Finding(**values)))  # type: ignore[arg-type]
    faults = []
    for name, pair_faults in inspection.faults.items():
        faults += _faulty_pairs(name, sources[name], pair_faults)
    faults.sort(key=lambda faulty: faulty.weight, reverse=True)
    environment = templates(Path(__file__).parent)
    environment.filters |= {
        "shortened": _shortened,
        "rows": _rows,
        "pairs": lambda count: quantity(count, "pairs"),
    }
    return environment.get_template("inspection_page.html").render(
        title=title,
        command=folded_command([*command, *_APPLY]),
        findings=findings,
        faults=faults,
        words=_WORDS,
        header=HEADER,
        splits=inspection.report["splits"],
    )


def _faulty_pairs(
    name: str, source: Source, faults: Sequence[PairFault]
) -> list[_FaultyPairs]:
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
    default = default_recipe(is_train(name))
    results = []
    for fault_name, group in by_name.items():
        numbered = {}
        for index in indices[fault_name][:MAX_PAIRS]:
            if index in pairs:
                numbered[index + 1] = pairs[index]
        faulty = _FaultyPairs(
            split=name,
            fault=fault_name,
            messages=[_heading(fault.finding) for fault in group],
            pairs=len(indices[fault_name]),
            shown=numbered,
            weight=group[0].finding.weight,  # the greatest one
            actions=actions_of(fault_name),
            default=default.actions[fault_name],
        )
        results.append(faulty)
    return results


def _heading(finding: Finding) -> str:
    """Returns a finding without its lines and its remedy, which the page offers."""
    return (
        f"{finding.split}: {finding.message}: {quantity(finding.pairs, 'pairs')} "
        f"({finding.share:.2%})"
    )


def _shortened(text: str) -> str:
    """Returns the beginning of a text, without lone surrogates."""
    text = text.strip()
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]} …"
    return text.encode("utf-8", "replace").decode()


def _rows(split: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns the rows of a split's table: the label, and the texts of both sides."""
    pairs = max(split["pairs"], 1)
    source = _side_cells(split["source"], pairs)
    target = _side_cells(split["target"], pairs)
    return [(label, text, target[label]) for label, text in source.items()]


def _side_cells(side: Mapping[str, Any], pairs: int) -> dict[str, str]:
    """Returns the texts of one column of the table of a split, by their labels."""
    cells = {
        "words": f"{side['words']:,}",
        "words per text": f"{side['words'] / pairs:.1f}",
        "characters": f"{side['characters']:,}",
        "characters per text": f"{side['characters'] / pairs:.1f}",
        "scripts of letters": _shares(side["scripts"]),
    }
    if side["languages"] is not None:
        cells["languages (guessed)"] = _shares(side["languages"])
    if "vocabulary" in side:
        use = side["vocabulary"]
        cells["tokens in the vocabulary"] = f"{use['tokens']:,}"
        cells["of which are used"] = f"{use['used']:.1%}"
        cells["tokens per word"] = f"{use['per_word']:.2f}"
        cells["unknown, or split into bytes"] = f"{use['unknown']:.3%}"
    return cells


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items()) or "-"
