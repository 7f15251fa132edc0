"""Searches the measurements of a split for faults."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_keras.problem import Pair
from t2t_keras.text.sentences import is_blank

from .directions import is_about_half
from .findings import FAULTS, Finding
from .measurements import Measurements, measure
from .mixed_directions import mixed_directions
from .norm import Norm
from .shifts import Shift, find_shifts

_CHUNK = 2_000  # pairs that are measured at a time
_BLOCK = 500_000  # pairs that are searched for shifts at a time
_GAP = 50  # lines between two stretches that are one
_EXAMPLES = 5  # line numbers that a finding has

# Upper bounds of classes of lengths in characters; the last class has none.
_BOUNDS = (5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000)
LENGTH_CLASSES = [f"0 to {_BOUNDS[0]}"]
for _low, _high in itertools.pairwise(_BOUNDS):
    LENGTH_CLASSES.append(f"{_low + 1} to {_high}")
LENGTH_CLASSES.append(f"more than {_BOUNDS[-1]}")


class PairFault(NamedTuple):
    """The pairs of a split that have a fault.

    Attributes:
        finding: what is reported of it.
        indices: the indices of all these pairs, increasing.
    """

    finding: Finding
    indices: np.ndarray


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
        self._unsearched: list[Measurements] = []  # not yet searched for shifts
        self._num_unsearched = 0
        self._hashes: list[np.ndarray] = []
        self._faults: dict[str, list[np.ndarray]] = {}
        # Only if the norm has no direction.
        self._forward: list[np.ndarray] = []
        self._examples: dict[str, Pair] = {}
        self._shifts: list[Shift] = []

    def add(self, pairs: Sequence[Pair]) -> None:
        """Inspects the next pairs."""
        measurements = measure(pairs, self._norm)
        for fault, indices in measurements.faults.items():
            self._faults.setdefault(fault, []).append(indices + self.pairs)
        if not self._norm.is_directed:
            self._add_directions(measurements, pairs)
        self._hashes.append(measurements.hashes)
        self._unsearched.append(measurements)
        self.pairs += len(pairs)
        self.words += measurements.words
        self.characters += measurements.lengths.sum(axis=0)
        for side, lengths in enumerate(measurements.lengths.T):
            np.add.at(self.histograms[side], np.searchsorted(_BOUNDS, lengths), 1)
        self._num_unsearched += len(pairs)
        if self._num_unsearched >= _BLOCK:
            self._search_shifts()

    def _add_directions(
        self, measurements: Measurements, pairs: Sequence[Pair]
    ) -> None:
        """Stores which pairs are in the direction of the norm, and an example."""
        self._forward.append(measurements.forward + self.pairs)
        groups = {"forward": measurements.forward}
        groups["swapped"] = measurements.faults["swapped"]
        for name, indices in groups.items():
            if len(indices):
                self._examples.setdefault(name, pairs[indices[0]])

    def add_all(self, pairs: Iterable[Pair]) -> None:
        """Inspects all pairs, without white space around their texts."""
        remaining = iter(pairs)
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            self.add([(_strip(source), _strip(target)) for source, target in chunk])

    def _search_shifts(self) -> None:
        """Searches the pairs since the last search."""
        lengths = np.concatenate([chunk.lengths for chunk in self._unsearched])
        anchors = np.concatenate([chunk.anchors for chunk in self._unsearched])
        self._unsearched.clear()
        self._num_unsearched = 0
        offset = self.pairs - len(lengths)
        for start, stop, lines in find_shifts(lengths, anchors, self._norm):
            shift = Shift(start + offset, stop + offset, lines)
            latest = self._shifts[-1] if self._shifts else None
            if (
                latest
                and latest.lines == lines
                and shift.start - latest.stop < _GAP - 1
            ):
                self._shifts[-1] = Shift(latest.start, shift.stop, lines)
            else:
                self._shifts.append(shift)

    def faults(self, disjoint: Sequence["SplitInspection"]) -> list[PairFault]:
        """Returns the faults with their pairs.

        Args:
            disjoint: splits that should have other sources.
        """
        if self._unsearched:
            self._search_shifts()
        faults = {name: np.concatenate(ids) for name, ids in self._faults.items()}
        is_shifted = np.zeros(self.pairs, bool)
        pair_faults = []
        for shift in self._shifts:
            is_shifted[shift.start : shift.stop] = True
            pair_faults.append(self._shift_fault(shift))
        if not self._norm.is_directed:
            faults["swapped"] = self._smaller_group(faults["swapped"])
        if "length" in faults:  # a shift explains unusual lengths
            faults["length"] = faults["length"][~is_shifted[faults["length"]]]
        sources, pairs = self._all_hashes()
        order = np.argsort(pairs, kind="stable")
        is_repeated = pairs[order][1:] == pairs[order][:-1]
        faults["duplicate"] = np.sort(order[1:][is_repeated])
        for fault, indices in faults.items():
            pair_faults.append(self._fault(fault, indices))
        for inspection in disjoint:
            shared = np.isin(sources, inspection._all_hashes()[0])
            indices = np.flatnonzero(shared)
            pair_faults.append(self._fault("overlap", indices, inspection.split))
        return [fault for fault in pair_faults if fault.finding.pairs]

    def direction_finding(self, languages: tuple[str, str] | None) -> Finding | None:
        """Returns the finding that about half of the pairs are swapped, if they are.

        Args:
            languages: those that the data should have; None: unknown.
        """
        if self._norm.is_directed or not self.pairs:
            return None
        groups = [np.concatenate(self._forward)]
        groups.append(np.concatenate(self._faults["swapped"]))
        if not is_about_half(*map(len, groups)):
            return None
        examples = [self._examples["forward"], self._examples["swapped"]]
        return mixed_directions(self.split, groups, examples, languages)

    def _smaller_group(self, backward: np.ndarray) -> np.ndarray:
        """Returns the swapped pairs, if the norm has no direction.

        Args:
            backward: the pairs that are not in the direction of the norm.

        Returns:
            The smaller of the two groups; none if they are about as large.
        """
        forward = np.concatenate(self._forward)
        if is_about_half(len(forward), len(backward)):
            return backward[:0]
        return min(forward, backward, key=len)

    def _all_hashes(self) -> np.ndarray:
        """Returns the hashes of the sources and of the pairs, uint64 [2, N]."""
        return np.concatenate([np.zeros((0, 2), np.uint64), *self._hashes]).T

    def _shift_fault(self, shift: Shift) -> PairFault:
        distance = abs(shift.lines)
        detail = (
            f"from line {shift.start + 1:,} to {shift.stop:,} the right target is "
            f"{distance} line{'s' * (distance > 1)} "
            f"{'below' if shift.lines > 0 else 'above'}"
        )
        return self._fault("shifted", np.arange(shift.start, shift.stop), detail)

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
