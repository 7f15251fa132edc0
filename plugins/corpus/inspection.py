"""Inspection of pairs of texts: statistics, and signs of faults.

A sample of the pairs shows what is normal (`Norm`), so that nothing here depends on the
languages: how long a target is for its source, and which sequences of three characters
belong to the source language and which to the target's. Then all pairs are compared
with it (`measure`), and the measurements are searched for faults (`SplitInspection`).
"""

import functools
import itertools
import math
import random
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.blank_text import is_blank
from t2t_keras.data.checksums import hash_64
from t2t_keras.data.cleaning import ENTITY
from t2t_keras.data.languages import language_shares
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.progress import progress
from t2t_keras.data.sides import SIDES
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair, Problem, Source, Split
from t2t_keras.text.tokenizer import UNK, Tokenizer
from t2t_keras.text.tokenizers import load_tokenizer

SAMPLE = 30_000  # pairs that show what is normal
_BEGINNING = 100_000  # pairs that datagen inspects
_UNREADABLE = 10.0  # the weight of a source that cannot be read, above all others
_RARE = 0.001  # the weight below which datagen does not mention a fault
_CHUNK = 2_000  # pairs that are measured at a time
_BLOCK = 500_000  # pairs that are searched for shifts at a time
_MOST_SHIFT = 5  # lines
_GAP = 50  # lines between two stretches that are one
_EXAMPLES = 5  # line numbers that a finding has
_MOST = 5  # scripts and languages that are named
_WORST = 3  # findings that datagen prints

# Upper bounds of classes of lengths in characters; the last class has none.
_ENDS = (5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000)
_LENGTHS = [
    *(f"{b + 1} to {e}" for b, e in zip((-1, *_ENDS[:-1]), _ENDS, strict=True)),
    f"more than {_ENDS[-1]}",
]

_SPACES = (9, 10, 13, 32, 0xA0, 0x3000)
_BITS = 18  # of the numbers of sequences of three characters
_MULTIPLIERS = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], np.uint32)
_TAIL = 4.0  # degrees of freedom of Student's distribution, for lengths

# Evidence in nats. A text that is equally likely in both languages has 0.
_SWAPPED = 2.0  # of each side
_WRONG_LANGUAGE = 6.0
_SHIFTED = 30.0
_PER_LINE = 0.2  # texts in disorder have less
_ANCHOR = 1.5  # of a number or a name that both sides have

_DAMAGE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")
# UTF-8 that was read as Windows-1252 or Latin-1: the first byte of a character, and
# what follows it.
_CONTINUED = "[\x80-\xbf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc"
_CONTINUED += "\u2013\u2014\u2018-\u201a\u201c-\u201e\u2020-\u2022\u2026\u2030\u2039"
_CONTINUED += "\u203a\u20ac\u2122]"
_MISREAD = re.compile(
    f"[\xc2-\xdf]{_CONTINUED}|[\xe0-\xef]{_CONTINUED}{{2}}|[\xf0-\xf4]{_CONTINUED}{{3}}"
)
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_ANCHORS = re.compile(r"\d+|[A-Z]\w{2,}")


class Norm:
    """What is normal for the pairs of a corpus.

    Args:
        sample: pairs of it.

    Attributes:
        odds: float32 [2 ** 18], by the number of a sequence of three characters the
            logarithm of how much likelier it is in the source language.
        ratio: median of the logarithm of target characters per source character.
        spread: its standard deviation, estimated robustly.
    """

    def __init__(self, sample: Sequence[Pair]) -> None:
        counts = []
        for side in (0, 1):
            _, text, _ = _characters([pair[side] for pair in sample])
            counts.append(np.bincount(_trigrams(text), minlength=1 << _BITS))
        source, target = (count + 0.5 for count in counts)
        odds = np.log(source / source.sum()) - np.log(target / target.sum())
        self.odds = odds.astype(np.float32)
        lengths = [[len(text) + 1 for text in pair] for pair in sample]
        table = np.log(np.array(lengths, np.float64).reshape(-1, 2))
        ratios = table[:, 1] - table[:, 0]
        self.ratio = float(np.median(ratios)) if len(ratios) else 0.0
        deviation = np.abs(ratios - self.ratio)
        spread = 1.4826 * float(np.median(deviation)) if len(ratios) else 1.0
        self.spread = max(spread, 0.05)

    def deviation(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Returns the logarithm of the ratio of lengths [N] to the usual ratio."""
        return np.log(target + 1.0) - np.log(source + 1.0) - self.ratio

    def fit(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Returns the log-likelihood of lengths [N], up to a constant.

        Args:
            source: characters of the sources.
            target: characters of the targets.
        """
        z = self.deviation(source, target) / self.spread
        return -(_TAIL + 1) / 2 * np.log1p(z * z / _TAIL)


class Measurements(NamedTuple):
    """The measurements of N pairs.

    Attributes:
        lengths: int32 [N, 2], characters of source and target.
        words: number of words of the sources, and of the targets.
        anchors: uint64 [N, 2], the numbers and names of each side, as sets of bits.
        hashes: uint64 [N, 2], hashes of the source and of the pair.
        faults: for each kind the numbers of the pairs that have it.
    """

    lengths: np.ndarray
    words: tuple[int, int]
    anchors: np.ndarray
    hashes: np.ndarray
    faults: dict[str, np.ndarray]


def measure(pairs: Sequence[Pair], norm: Norm) -> Measurements:
    """Measures each pair by itself."""
    lengths, odds, words = [], [], []
    faults: dict[str, list[np.ndarray]] = {"encoding": [], "entities": []}
    for side in (0, 1):
        content, text, starts = _characters([pair[side] for pair in pairs])
        lengths.append(np.diff(starts) - 1)
        sums = np.cumsum(np.append(0.0, norm.odds[_trigrams(text)]))
        odds.append(sums[starts[1:] - 1] - sums[starts[:-1]])
        is_space = np.isin(text, _SPACES)
        words.append(int(np.count_nonzero(is_space[1:] & ~is_space[:-1])))
        for kind, places in {
            "encoding": [*_places(_DAMAGE, content), *_misread(content)],
            "entities": [*_places(ENTITY, content)],
        }.items():
            lines = np.searchsorted(starts, places, side="right") - 1
            faults[kind].append(lines.astype(np.int64))
    source, target = lengths
    is_empty = np.minimum(source, target) == 0
    normal = [(" ".join(s.split()), " ".join(t.split())) for s, t in pairs]
    encoded = ((s, f"{s}\n{t}") for s, t in normal)
    hashes = [
        (
            hash_64(s.encode("utf-8", "surrogatepass")),
            hash_64(both.encode("utf-8", "surrogatepass")),
        )
        for s, both in encoded
    ]
    is_same = np.array([s == t for s, t in normal], bool) & ~is_empty
    of_source, of_target = np.where(is_same, 0.0, odds)
    kinds = {
        "empty": is_empty,
        "identical": is_same,
        "swapped": (of_source < -_SWAPPED) & (of_target > _SWAPPED),
        "source_language": (of_source > 0) & (of_target > _WRONG_LANGUAGE),
        "target_language": (of_source < -_WRONG_LANGUAGE) & (of_target < 0),
        "length": ~is_empty & _is_far(source, target, norm),
    }
    return Measurements(
        np.stack(lengths, axis=1).astype(np.int32),
        (words[0], words[1]),
        _uint64_rows(
            [(_anchors(source), _anchors(target)) for source, target in pairs]
        ),
        _uint64_rows(hashes),
        {kind: np.unique(np.concatenate(found)) for kind, found in faults.items()}
        | {kind: np.flatnonzero(is_faulty) for kind, is_faulty in kinds.items()},
    )


def _uint64_rows(rows: list[tuple[int, int]]) -> np.ndarray:
    return np.array(rows, np.uint64).reshape(-1, 2)


def _is_far(source: np.ndarray, target: np.ndarray, norm: Norm) -> np.ndarray:
    """Whether lengths are far from what is normal, by ratio and by difference."""
    expected = source * math.exp(norm.ratio)
    is_far = np.abs(norm.deviation(source, target)) > math.log(2.5)
    return is_far & (np.abs(target - expected) > 20)


def _characters(texts: Sequence[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """Joins texts, each with a newline behind it.

    Returns:
        The joined text, its characters, uint32 [C], and where each text starts, int64
        [N + 1], of which the last is C.
    """
    content = "".join(f"{text}\n" for text in texts)
    text = np.frombuffer(content.encode("utf-32-le", "surrogatepass"), np.uint32)
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    return content, text, starts


def _trigrams(text: np.ndarray) -> np.ndarray:
    """Returns the numbers of the sequences of three characters that begin at each one.

    Those that reach beyond a text have another number than any within one, since texts
    end in newlines. ASCII letters count as lower case.
    """
    upper = (text >= 65) & (text <= 90)
    text = np.where(upper, text + np.uint32(32), text).astype(np.uint32)
    padded = np.append(text, np.zeros(2, np.uint32))
    mixed = (
        padded[:-2] * _MULTIPLIERS[0]
        ^ padded[1:-1] * _MULTIPLIERS[1]
        ^ padded[2:] * _MULTIPLIERS[2]
    )
    return (mixed * _MULTIPLIERS[0]) >> np.uint32(32 - _BITS)


def _places(pattern: re.Pattern[str], text: str) -> Iterator[int]:
    return (match.start() for match in pattern.finditer(text))


def _misread(text: str) -> Iterator[int]:
    """Yields where UTF-8 was read as Windows-1252 or Latin-1."""
    for match in _MISREAD.finditer(text):
        for encoding in ("cp1252", "latin-1"):
            try:
                match[0].encode(encoding).decode("utf-8")
            except UnicodeError:
                continue
            yield match.start()
            break


def _anchors(text: str) -> int:
    """Returns the numbers and names of a text as a set of 64 bits."""
    bits = 0
    for word in _ANCHORS.findall(text):
        bits |= 1 << (zlib.crc32(word.encode()) & 63)
    return bits


class Shift(NamedTuple):
    """A stretch of lines in which each source belongs to a later or earlier target.

    Attributes:
        first: number of its first pair, from 0.
        last: number of its last pair.
        lines: how many lines later the right target is; negative: earlier.
    """

    first: int
    last: int
    lines: int


def find_shifts(lengths: np.ndarray, anchors: np.ndarray, norm: Norm) -> list[Shift]:
    """Returns the stretches in which one of the files is shifted.

    For each distance, the evidence that source i belongs to target i + distance, and
    not to target i, is how much likelier their lengths are together, and which numbers
    and names they share. The stretch with the greatest sum of evidence is shifted if
    that is beyond chance; then the rest is searched.

    Args:
        lengths: int32 [N, 2], see `Measurements`.
        anchors: uint64 [N, 2], see `Measurements`.
        norm: what is normal.
    """
    shifts: list[Shift] = []
    distances = [d for n in range(1, _MOST_SHIFT + 1) for d in (n, -n)]
    stretches = [(0, len(lengths))]
    while stretches:
        first, last = stretches.pop()
        evidence, shift = max(
            _best_stretch(lengths, anchors, (first, last), distance, norm)
            for distance in distances
        )
        if evidence > max(_SHIFTED, _PER_LINE * (shift.last + 1 - shift.first)):
            shifts.append(shift)
            stretches += [(first, shift.first), (shift.last + 1, last)]
    return sorted(shifts)


def _best_stretch(
    lengths: np.ndarray,
    anchors: np.ndarray,
    stretch: tuple[int, int],
    distance: int,
    norm: Norm,
) -> tuple[float, Shift]:
    """Returns the stretch with the most evidence for a distance, and the evidence.

    Args:
        lengths: int32 [N, 2], of all pairs.
        anchors: uint64 [N, 2], of all pairs.
        stretch: the first pair to look at, and the one after the last.
        distance: see `Shift.lines`.
        norm: what is normal.
    """
    low, high = max(stretch[0], -distance), min(stretch[1], len(lengths) - distance)
    if high - low < 2:
        return 0.0, Shift(0, 0, distance)
    source, there = slice(low, high), slice(low + distance, high + distance)

    def evidence(target: slice) -> np.ndarray:
        shared = np.bitwise_count(anchors[source, 0] & anchors[target, 1])
        fit = norm.fit(lengths[source, 0], lengths[target, 1])
        return fit + _ANCHOR * np.minimum(shared, 3)

    sums = np.cumsum(np.append(0.0, evidence(there) - evidence(source)))
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    begin = int(np.argmin(sums[: end + 1]))
    return float(sums[end] - sums[begin]), Shift(low + begin, low + end - 1, distance)


# Kinds of faults: how bad one line is, the message, and the remedy.
_KINDS: dict[str, tuple[float, str, str]] = {
    "swapped": (
        1.0,
        "source and target are swapped",
        "exchange the two sides of these lines in the files",
    ),
    "shifted": (
        1.0,
        "source and target do not belong together: {detail}",
        "insert or remove a line where this begins",
    ),
    "encoding": (
        1.0,
        "damaged characters (wrong encoding, control characters)",
        "convert the files (`iconv`), or drop these pairs with --clean control",
    ),
    "source_language": (
        0.7,
        "the target is in the source language",
        "remove these lines from both files",
    ),
    "target_language": (
        0.7,
        "the source is in the target language",
        "remove these lines from both files",
    ),
    "length": (
        0.5,
        "one side is far longer than usual",
        "drop such pairs with --clean ratio=2.5",
    ),
    "identical": (
        0.5,
        "source and target are the same",
        "drop such pairs with --clean identical",
    ),
    "empty": (
        0.5,
        "one side is empty",
        "datagen drops them from train; remove these lines from other splits",
    ),
    "entities": (
        0.5,
        "HTML entities or escapes of Moses' tokenizer, such as &amp; or @-@",
        "undo them in all files (`sacremoses detokenize`, Python's html.unescape), or "
        "drop such pairs with --clean entities",
    ),
    "overlap": (
        3.0,
        "the source is also in {detail}",
        "remove these lines from the training files",
    ),
    "duplicate": (
        0.2,
        "the pair occurred before",
        "drop such pairs with --clean duplicates",
    ),
}


class Finding(NamedTuple):
    """A fault of a split.

    Attributes:
        split: the split.
        kind: a key of `_KINDS`, or "unreadable" if a file cannot be read to its end.
        message: the kind in words.
        pairs: number of pairs that have it.
        share: their share of the split.
        lines: the numbers of the first ones, from 1.
        weight: how bad it is; the worst finding has the greatest weight.
        remedy: what to do.
    """

    split: str
    kind: str
    message: str
    pairs: int
    share: float
    lines: list[int]
    weight: float
    remedy: str

    def __str__(self) -> str:
        """Returns it in one line."""
        if not self.pairs:
            return f"{self.split}: {self.message}; {self.remedy}"
        pairs = "pair" if self.pairs == 1 else "pairs"
        lines = ", ".join(f"{line:,}" for line in self.lines)
        more = ", ..." if self.pairs > len(self.lines) else ""
        return (
            f"{self.split}: {self.message}: {self.pairs:,} {pairs} ({self.share:.2%}), "
            f"line {lines}{more}; {self.remedy}"
        )


def _unreadable(split: str, message: str) -> Finding:
    remedy = "repair or replace the file"
    return Finding(split, "unreadable", message, 0, 0.0, [], _UNREADABLE, remedy)


class SplitInspection:
    """The inspection of one split, which takes its pairs in order.

    It keeps 16 bytes of each pair, and counts.

    Args:
        split: its name.
        norm: what is normal.

    Attributes:
        pairs: the number of pairs.
        words: the number of words of each side.
        characters: the number of characters of each side.
        histograms: int64 [2, classes], for each side the number of texts in each class
            of lengths.
    """

    def __init__(self, split: str, norm: Norm) -> None:
        self._split, self._norm = split, norm
        self.pairs = 0
        self.words, self.characters = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self.histograms = np.zeros((2, len(_LENGTHS)), np.int64)
        self._waiting: list[Measurements] = []  # since the last search for shifts
        self._hashes: list[np.ndarray] = []
        self._faults: dict[str, list[np.ndarray]] = {}
        self._shifts: list[Shift] = []

    def add(self, pairs: Sequence[Pair]) -> None:
        """Inspects the next pairs."""
        found = measure(pairs, self._norm)
        for kind, numbers in found.faults.items():
            self._faults.setdefault(kind, []).append(numbers + self.pairs)
        self._hashes.append(found.hashes)
        self._waiting.append(found)
        self.pairs += len(pairs)
        self.words += found.words
        self.characters += found.lengths.sum(axis=0)
        for side, lengths in enumerate(found.lengths.T):
            np.add.at(self.histograms[side], np.searchsorted(_ENDS, lengths), 1)
        if sum(len(part.lengths) for part in self._waiting) >= _BLOCK:
            self._search_shifts()

    def add_all(self, pairs: Iterable[Pair]) -> None:
        """Inspects all pairs, without white space at their ends."""
        rest = iter(pairs)
        while chunk := list(itertools.islice(rest, _CHUNK)):
            self.add([(_shown(source), _shown(target)) for source, target in chunk])

    def _search_shifts(self) -> None:
        """Searches the pairs since the last search."""
        lengths, anchors = (
            np.concatenate([getattr(part, name) for part in self._waiting])
            for name in ("lengths", "anchors")
        )
        self._waiting.clear()
        before = self.pairs - len(lengths)
        for first, last, lines in find_shifts(lengths, anchors, self._norm):
            shift = Shift(first + before, last + before, lines)
            latest = self._shifts[-1] if self._shifts else None
            if latest and latest.lines == lines and shift.first - latest.last < _GAP:
                self._shifts[-1] = Shift(latest.first, shift.last, lines)
            else:
                self._shifts.append(shift)

    def findings(self, others: Sequence["SplitInspection"]) -> list[Finding]:
        """Returns the faults.

        Args:
            others: splits that should have other sources.
        """
        if self._waiting:
            self._search_shifts()
        faults = {kind: np.concatenate(found) for kind, found in self._faults.items()}
        shifted = np.zeros(self.pairs, bool)
        findings = []
        for shift in self._shifts:
            shifted[shift.first : shift.last + 1] = True
            stretch = np.arange(shift.first, shift.last + 1)
            distance = abs(shift.lines)
            findings.append(
                self._finding(
                    "shifted",
                    stretch,
                    f"from line {shift.first + 1:,} to {shift.last + 1:,} the right "
                    f"target is {distance} line{'s' * (distance > 1)} "
                    f"{'below' if shift.lines > 0 else 'above'}",
                )
            )
        if "length" in faults:  # a shift explains them
            faults["length"] = faults["length"][~shifted[faults["length"]]]
        sources, pairs = self._all_hashes()
        order = np.argsort(pairs, kind="stable")
        again = pairs[order][1:] == pairs[order][:-1]
        faults["duplicate"] = np.sort(order[1:][again])
        findings += [self._finding(k, found) for k, found in faults.items()]
        for other in others:
            common = np.flatnonzero(np.isin(sources, other._all_hashes()[0]))
            findings.append(self._finding("overlap", common, other._split))
        return [finding for finding in findings if finding.pairs]

    def _all_hashes(self) -> np.ndarray:
        """Returns the hashes of the sources and of the pairs, uint64 [2, N]."""
        return np.concatenate([np.zeros((0, 2), np.uint64), *self._hashes]).T

    def _finding(self, kind: str, numbers: np.ndarray, detail: str = "") -> Finding:
        """Returns the finding that the pairs with some numbers have a fault."""
        weight, text, remedy = _KINDS[kind]
        share = len(numbers) / max(self.pairs, 1)
        return Finding(
            self._split,
            kind,
            text.format(detail=detail),
            len(numbers),
            share,
            [int(number) + 1 for number in numbers[:_EXAMPLES]],
            weight * share,
            remedy,
        )


def decoded_examples(
    data_dir: Path, problem: Problem
) -> tuple[dict[str, Source], tuple[Tokenizer, Tokenizer]]:
    """Returns the texts of all examples of a data directory, and its tokenizers.

    Args:
        data_dir: the directory.
        problem: the problem.

    Returns:
        For each split, or each corpus in it, a function that yields its pairs without
        tags; and the tokenizers of source and target.

    Raises:
        UserError: the directory has no data of the problem, or is damaged.
    """
    from t2t_keras.data.decoded_pairs import read_pairs

    manifest = Manifest.open(data_dir, problem.data_name)
    manifest.check_vocabularies(data_dir)
    files = [data_dir / manifest.vocab_files[side] for side in SIDES]
    source, target = (load_tokenizer(f) for f in files[:: -1 if problem.reverse else 1])

    def pairs(split: Split, corpus: int) -> Iterator[Pair]:
        index = manifest.open_index(data_dir, split, problem.reverse)
        records = np.arange(len(index))
        if index.corpus is not None:
            records = np.flatnonzero(index.corpus == corpus)
        for source_ids, target_ids in read_pairs(index, records.tolist()):
            text = source.decode(source_ids)
            tag, _, rest = text.partition(" ")
            untagged = rest if tag in manifest.tags else text
            yield untagged, target.decode(target_ids)

    sources: dict[str, Source] = {
        f"{split} {name}".strip(): functools.partial(pairs, split, corpus)
        for split in manifest.examples
        for corpus, name in enumerate(manifest.corpora.get(split, [""]))
    }
    return sources, (source, target)


def inspect(
    sources: Mapping[str, Source],
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
) -> dict[str, Any]:
    """Inspects the splits of a corpus; each source is read twice.

    Args:
        sources: the sources of the splits "train", "dev", "test", or of the corpora in
            them, "train europarl".
        tokenizers: of source and target, to see how they split the texts; None: there
            are none.

    Returns:
        "splits": the statistics by name; and "findings": dicts with the
        attributes of `Finding`, the worst first.
    """
    samples, findings = dict[str, list[Pair]](), list[Finding]()
    for name, source in sources.items():
        with progress(f"reading {name}", "pairs") as advance:
            samples[name] = draw(_watched(source(), name, findings, advance))
    trains = list(filter(_is_train, sources))
    norms: dict[str, Norm] = {}
    inspections: dict[str, SplitInspection] = {}
    for name, source in sources.items():
        # With several training corpora, the corpora of dev and test are unknown.
        like = trains[0] if len(trains) == 1 else name
        if like not in norms:
            norms[like] = Norm(samples[like])
        norms[name] = norms[like]
        inspections[name] = SplitInspection(name, norms[name])
        with progress(f"inspecting {name}", "pairs") as advance:
            pairs = _watched(source(), name, [], advance)
            inspections[name].add_all(pairs)
    others = [inspections[name] for name in sources if name not in trains]
    for name, inspection in inspections.items():
        if not inspection.pairs and not any(f.split == name for f in findings):
            findings.append(_unreadable(name, "has not a single pair"))
        findings += inspection.findings(others if name in trains else [])
    return {
        "splits": {
            name: _statistics(inspection, samples[name], norms[name], tokenizers)
            for name, inspection in inspections.items()
        },
        "findings": [
            finding._asdict()
            for finding in sorted(findings, key=lambda f: f.weight, reverse=True)
        ],
    }


def _shown(text: str) -> str:
    """Returns a text without white space at its ends; "" if nothing of it shows."""
    return "" if is_blank(text) else text.strip()


def _watched(
    pairs: Iterable[Pair],
    split: str,
    findings: list[Finding],
    advance: Callable[[int], None],
) -> Iterator[Pair]:
    """Yields pairs; a source that cannot be read to its end becomes a finding."""
    number = 0
    try:
        for number, pair in enumerate(pairs, start=1):
            yield pair
            if number % _CHUNK == 0:
                advance(_CHUNK)
    except UserError as error:
        findings.append(_unreadable(split, f"cannot be read to the end: {error}"))
    advance(number % _CHUNK)


def _statistics(
    found: SplitInspection,
    sample: Sequence[Pair],
    norm: Norm,
    tokenizers: tuple[Tokenizer, Tokenizer] | None,
) -> dict[str, Any]:
    """Returns the statistics of a split, some of them from a sample."""
    sides = {}
    for side, name in enumerate(("source", "target")):
        texts = [pair[side] for pair in sample]
        sides[name] = {
            "words": int(found.words[side]),
            "characters": int(found.characters[side]),
            "histogram": dict(
                zip(_LENGTHS, found.histograms[side].tolist(), strict=True)
            ),
            "scripts": _scripts(texts),
            "languages": _languages(texts),
        }
        if tokenizers:
            sides[name]["vocabulary"] = _use(tokenizers[side], texts)
    return {
        "pairs": found.pairs,
        "target_characters_per_source_character": round(math.exp(norm.ratio), 3),
        **sides,
    }


def _scripts(texts: Sequence[str]) -> dict[str, float]:
    """Returns the share of each script among the letters, by its Unicode name."""
    counts = Counter("".join(texts))
    scripts = Counter[str]()
    for character, count in counts.items():
        if character.isalpha():
            scripts[unicodedata.name(character, "unknown").split()[0].lower()] += count
    total = scripts.total()
    return {name: round(n / total, 4) for name, n in scripts.most_common(_MOST)}


def _languages(texts: Sequence[str]) -> dict[str, float] | None:
    """Returns the share of texts of the main languages; None without the library."""
    shares = language_shares(texts)
    if shares is None:
        return None
    most = list(shares.items())[:_MOST]
    return {name: round(share, 3) for name, share in most if share >= 0.01}


def _use(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, float]:
    """Returns how a vocabulary splits texts.

    Returns:
        "tokens": its size; "used": the share of its tokens that occur; "per_word":
        tokens for each word; "unknown": the share of tokens that are unknown or bytes.
    """
    counts = Counter[int]()
    for text in texts:
        counts.update(tokenizer.encode(text)[:-1])
    pieces = tokenizer.pieces
    rare = sum(n for i, n in counts.items() if i == UNK or _BYTE.fullmatch(pieces[i]))
    words = sum(len(text.split()) for text in texts)
    return {
        "tokens": len(pieces),
        "used": round(len(counts) / len(pieces), 3),
        "per_word": round(counts.total() / max(words, 1), 3),
        "unknown": round(rare / max(counts.total(), 1), 5),
    }


def _is_train(name: str) -> bool:
    """Whether a name is "train" or names a corpus in it."""
    return name.split()[0] == "train"


def draw(pairs: Iterable[Pair], size: int = SAMPLE, seed: int = 0) -> list[Pair]:
    """Draws pairs without knowing their number (Vitter's algorithm R)."""
    rng, sample = random.Random(seed), list[Pair]()
    for count, pair in enumerate(pairs, start=1):
        if len(sample) < size:
            sample.append(pair)
        elif (place := rng.randrange(count)) < size:
            sample[place] = pair
    return sample
