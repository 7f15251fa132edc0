"""Inspection of pairs of texts: statistics, and signs of faults.

A sample of the pairs shows what is normal (`Norm`). Then all pairs are compared with it
(`measure`), and the measurements are searched for faults (`SplitInspection`).
"""

import itertools
import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from t2t_keras.console import progress
from t2t_keras.data.sources import ParallelFiles, language_shares
from t2t_keras.errors import UserError
from t2t_keras.files.text_files import uncompressed_suffix
from t2t_keras.problem import Pair, Source
from t2t_keras.text.sentences import is_blank
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import UNK

from .findings import FAULTS, Finding, language_finding, unreadable_source
from .measurements import Norm, measure
from .tables import two_codes

_SAMPLE = 30_000  # pairs that show what is normal
_CHUNK = 2_000  # pairs that are measured, and reported, at a time
_EXAMPLES = 5  # line numbers that a finding has
_MAX_NAMES = 5  # scripts and languages that are named
_BYTE = re.compile("<0x[0-9A-F]{2}>")

# Upper bounds of classes of lengths in characters; the last class has none.
_BOUNDS = (5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000)
LENGTH_CLASSES = [f"0 to {_BOUNDS[0]}"]
for _low, _high in itertools.pairwise(_BOUNDS):
    LENGTH_CLASSES.append(f"{_low + 1} to {_high}")
LENGTH_CLASSES.append(f"more than {_BOUNDS[-1]}")


class Report(TypedDict):
    """The result of an inspection.

    Attributes:
        splits: see `split_statistics`, by the names of the sources.
        findings: the fields of each `Finding`, the worst first.
    """

    splits: dict[str, dict[str, object]]
    findings: list[dict[str, object]]


class PairFault(NamedTuple):
    """The pairs of a split that have a fault.

    Attributes:
        finding: what is reported of it.
        indices: the indices of all these pairs, increasing.
    """

    finding: Finding
    indices: np.ndarray


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
            inspections[name].add(counted(pairs, advance))
    held_out = [i for name, i in inspections.items() if not is_train(name)]
    splits = {}
    faults = {}
    for name, inspection in inspections.items():
        if not inspection.pairs and not any(f.split == name for f in findings):
            findings.append(unreadable_source(name, "has no pairs"))
        faults[name] = inspection.faults(held_out if is_train(name) else [])
        findings += [fault.finding for fault in faults[name]]
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


def draw(pairs: Iterable[Pair]) -> list[Pair]:
    """Draws `_SAMPLE` pairs without knowing their number (Vitter's algorithm R)."""
    rng = random.Random(0)
    sample: list[Pair] = []
    for count, pair in enumerate(pairs, start=1):
        if len(sample) < _SAMPLE:
            sample.append(pair)
            continue
        index = rng.randrange(count)
        if index < _SAMPLE:
            sample[index] = pair
    return sample


def named_languages(source: Source) -> tuple[str, str] | None:
    """Returns the languages that the suffixes of two files name, such as `.en.gz`."""
    if not isinstance(source, ParallelFiles):
        return None
    paths = (source.source_path, source.target_path)
    return two_codes(map(uncompressed_suffix, paths))


def counted(pairs: Iterable[Pair], advance: Callable[[int], None]) -> Iterator[Pair]:
    """Yields pairs, and reports how many.

    Args:
        pairs: the pairs.
        advance: called with the number of pairs since the last call, see `progress`.
    """
    count = 0
    for pair in pairs:
        count += 1
        yield pair
        if count % _CHUNK == 0:
            advance(_CHUNK)
    advance(count % _CHUNK)


class SplitInspection:
    """The inspection of one split, which takes its pairs in order.

    It stores 16 bytes for each pair, and counts.

    Args:
        split: its name.
        norm: what is normal.

    Attributes:
        split: its name.
        pairs: the number of pairs.
        words: the number of words of each side.
        characters: the number of characters of each side.
        histograms: int64 [2, classes], for each side the number of texts in each class
            of lengths.
    """

    def __init__(self, split: str, norm: Norm) -> None:
        self.split = split
        self.pairs = 0
        self.words = np.zeros(2, np.int64)
        self.characters = np.zeros(2, np.int64)
        self.histograms = np.zeros((2, len(LENGTH_CLASSES)), np.int64)
        self._norm = norm
        self._hashes: list[np.ndarray] = []
        self._faults: dict[str, list[np.ndarray]] = {}

    def add(self, pairs: Iterable[Pair]) -> None:
        """Inspects pairs, without white space around their texts."""
        remaining = iter(pairs)
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            stripped = [(_strip(source), _strip(target)) for source, target in chunk]
            measurements = measure(stripped, self._norm)
            for fault, indices in measurements.faults.items():
                self._faults.setdefault(fault, []).append(indices + self.pairs)
            self._hashes.append(measurements.hashes)
            self.pairs += len(chunk)
            self.words += measurements.words
            self.characters += measurements.lengths.sum(axis=0)
            for side, lengths in enumerate(measurements.lengths.T):
                np.add.at(self.histograms[side], np.searchsorted(_BOUNDS, lengths), 1)

    def faults(self, disjoint: Sequence["SplitInspection"]) -> list[PairFault]:
        """Returns the faults with their pairs.

        Args:
            disjoint: splits that should have other sources.
        """
        faults = {name: np.concatenate(ids) for name, ids in self._faults.items()}
        sources, pairs = self._all_hashes()
        order = np.argsort(pairs, kind="stable")
        is_repeated = pairs[order][1:] == pairs[order][:-1]
        faults["duplicate"] = np.sort(order[1:][is_repeated])
        pair_faults = []
        for fault, indices in faults.items():
            pair_faults.append(self._fault(fault, indices))
        for inspection in disjoint:
            shared = np.isin(sources, inspection._all_hashes()[0])
            indices = np.flatnonzero(shared)
            pair_faults.append(self._fault("overlap", indices, inspection.split))
        return [fault for fault in pair_faults if fault.finding.pairs]

    def _all_hashes(self) -> np.ndarray:
        """Returns the hashes of the sources and of the pairs, uint64 [2, N]."""
        return np.concatenate([np.zeros((0, 2), np.uint64), *self._hashes]).T

    def _fault(self, name: str, indices: np.ndarray, detail: str = "") -> PairFault:
        """Returns the fault that some pairs have.

        Args:
            name: the name of the fault.
            indices: the pairs.
            detail: completes the message.
        """
        fault = FAULTS[name]
        share = len(indices) / max(self.pairs, 1)
        finding = Finding(
            split=self.split,
            kind=name,
            message=fault.message.format(detail=detail),
            pairs=len(indices),
            share=share,
            lines=[int(index) + 1 for index in indices[:_EXAMPLES]],
            weight=fault.weight * share,
            remedy=fault.remedy,
        )
        return PairFault(finding, indices)


def _strip(text: str) -> str:
    """Returns a text without white space around it; "" if nothing is visible."""
    return "" if is_blank(text) else text.strip()


def split_statistics(
    inspection: SplitInspection,
    sample: Sequence[Pair],
    norm: Norm,
    tokenizers: tuple[Tokenizer, Tokenizer] | None,
) -> dict[str, Any]:
    """Returns the statistics of a split, as the report of `t2t inspect` has them.

    Args:
        inspection: the inspection of the split.
        sample: pairs of the split.
        norm: what is normal.
        tokenizers: the tokenizers of source and target; None: there are none.
    """
    statistics: dict[str, Any] = {
        "pairs": inspection.pairs,
        "target_characters_per_source_character": round(math.exp(norm.ratio), 3),
    }
    for side, name in enumerate(("source", "target")):
        texts = [pair[side] for pair in sample]
        histogram = inspection.histograms[side].tolist()
        side_statistics: dict[str, Any] = {
            "words": int(inspection.words[side]),
            "characters": int(inspection.characters[side]),
            "histogram": dict(zip(LENGTH_CLASSES, histogram, strict=True)),
            "scripts": _script_shares(texts),
            "languages": _language_shares(texts),
        }
        if tokenizers:
            side_statistics["vocabulary"] = _vocabulary_use(tokenizers[side], texts)
        statistics[name] = side_statistics
    return statistics


def _script_shares(texts: Sequence[str]) -> dict[str, float]:
    """Returns the share of each script among the letters, by its Unicode name."""
    scripts = Counter[str]()
    for character, count in Counter("".join(texts)).items():
        if character.isalpha():
            scripts[unicodedata.name(character, "unknown").split()[0].lower()] += count
    total = scripts.total()
    return {name: round(n / total, 4) for name, n in scripts.most_common(_MAX_NAMES)}


def _language_shares(texts: Sequence[str]) -> dict[str, float] | None:
    """Returns the share of texts of the main languages; None without the library."""
    shares = language_shares(texts)
    if shares is None:
        return None
    rounded = {}
    for name, share in list(shares.items())[:_MAX_NAMES]:
        if share >= 0.01:
            rounded[name] = round(share, 3)
    return rounded


def _vocabulary_use(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, float]:
    """Returns how a vocabulary splits texts.

    Returns:
        "tokens": its size; "used": the share of its tokens that occur; "per_word":
        tokens for each word; "unknown": the share of tokens that are unknown or bytes.
    """
    counts = Counter[int]()
    words = 0
    for text in texts:
        counts.update(tokenizer.encode(text)[:-1])
        words += len(text.split())
    pieces = tokenizer.pieces
    unknown = 0
    for token, count in counts.items():
        if token == UNK or _BYTE.fullmatch(pieces[token]):
            unknown += count
    return {
        "tokens": len(pieces),
        "used": round(len(counts) / len(pieces), 3),
        "per_word": round(counts.total() / max(words, 1), 3),
        "unknown": round(unknown / max(counts.total(), 1), 5),
    }
