"""Inspection of pairs of texts: statistics, and signs of faults.

A sample of the pairs shows what is normal (`Norm`). Then all pairs are compared with it
(`measure`), and the measurements are searched for faults (`SplitInspection`).
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypedDict

from t2t_keras.console import progress
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair, Source
from t2t_keras.text.tokenizer import Tokenizer

from .counted_pairs import counted
from .directions import named_languages
from .findings import Finding, unreadable_source
from .language_check import language_finding
from .norm import Norm
from .split_inspection import PairFault, SplitInspection
from .split_statistics import split_statistics

SAMPLE = 30_000  # pairs that show what is normal


class Report(TypedDict):
    """The result of an inspection.

    Attributes:
        splits: see `split_statistics`, by the names of the sources.
        findings: the fields of each `Finding`, the worst first.
    """

    splits: dict[str, dict[str, object]]
    findings: list[dict[str, object]]


class Inspection(NamedTuple):
    """An inspection with the pairs that have faults.

    Attributes:
        report: the result.
        faults: the faults of each source, by its name.
    """

    report: Report
    faults: dict[str, list[PairFault]]


def inspect(
    sources: Mapping[str, Source],
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    languages: tuple[str, str] | None = None,
) -> Inspection:
    """Inspects the splits of a corpus; each source is read twice.

    Args:
        sources: the sources of the splits "train", "dev", "test", or of the corpora in
            them, "train europarl".
        tokenizers: of source and target, to see how they split the texts; None: there
            are none.
        languages: those that source and target should have; None: any.
    """
    findings: list[Finding] = []
    samples = {}
    for name, source in sources.items():
        with progress(f"reading {name}", "pairs") as advance:
            pairs = _readable(source(), name, findings)
            samples[name] = draw(counted(pairs, advance))
    by_split = {name: languages or named_languages(s) for name, s in sources.items()}
    norms = _norms(samples, by_split)
    inspections = {}
    for name, source in sources.items():
        inspections[name] = SplitInspection(name, norms[name])
        with progress(f"inspecting {name}", "pairs") as advance:
            pairs = _readable(source(), name, [])
            inspections[name].add_all(counted(pairs, advance))
    held_out = [i for name, i in inspections.items() if not is_train(name)]
    splits = {}
    faults = {}
    for name, inspection in inspections.items():
        if not inspection.pairs and not any(f.split == name for f in findings):
            findings.append(unreadable_source(name, "has not a single pair"))
        faults[name] = inspection.faults(held_out if is_train(name) else [])
        findings += [fault.finding for fault in faults[name]]
        if mixed := inspection.direction_finding(languages):
            findings.append(mixed)
        statistics = split_statistics(
            inspection, samples[name], norms[name], tokenizers
        )
        splits[name] = statistics
        shares = (statistics["source"]["languages"], statistics["target"]["languages"])
        if languages and (finding := language_finding(name, shares, languages)):
            findings.append(finding)
    findings.sort(key=lambda finding: finding.weight, reverse=True)
    report: Report = {
        "splits": splits,
        "findings": [finding._asdict() for finding in findings],
    }
    return Inspection(report, faults)


def _norms(
    samples: Mapping[str, list[Pair]],
    languages: Mapping[str, tuple[str, str] | None],
) -> dict[str, Norm]:
    """Returns what is normal for each split: what is normal in its training corpus.

    With several training corpora, it is unknown to which of them dev and test belong:
    then each split has a norm.

    Args:
        samples: pairs of each split.
        languages: the languages of each split; None: unknown.
    """
    trains = [name for name in samples if is_train(name)]
    if len(trains) == 1:
        train = trains[0]
        return dict.fromkeys(samples, Norm(samples[train], languages[train]))
    return {name: Norm(sample, languages[name]) for name, sample in samples.items()}


def _readable(
    pairs: Iterable[Pair], split: str, findings: list[Finding]
) -> Iterator[Pair]:
    """Yields pairs; a source that cannot be read to its end becomes a finding."""
    try:
        yield from pairs
    except UserError as error:
        message = f"cannot be read to the end: {error}"
        findings.append(unreadable_source(split, message))


def is_train(name: str) -> bool:
    """Whether a name is "train" or names a corpus in it."""
    return name.split()[0] == "train"


def draw(pairs: Iterable[Pair], size: int = SAMPLE, seed: int = 0) -> list[Pair]:
    """Draws pairs without knowing their number (Vitter's algorithm R)."""
    rng = random.Random(seed)
    sample: list[Pair] = []
    for count, pair in enumerate(pairs, start=1):
        if len(sample) < size:
            sample.append(pair)
            continue
        index = rng.randrange(count)
        if index < size:
            sample[index] = pair
    return sample
