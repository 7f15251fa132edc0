"""Finds stretches of lines in which one of the two files is shifted."""

from typing import NamedTuple

import numpy as np

from .measurements import Norm

_MAX_DISTANCE = 5  # lines

# Evidence in nats.
_SHIFTED = 30.0
_PER_LINE = 0.2  # texts in disorder have less
_ANCHOR = 1.5  # for a number or a name that both sides have


class Shift(NamedTuple):
    """A stretch of lines in which each source belongs to a later or earlier target.

    Attributes:
        start: index of the first pair.
        stop: index after that of the last pair.
        lines: how many lines later the right target is; negative: earlier.
    """

    start: int
    stop: int
    lines: int


def find_shifts(lengths: np.ndarray, anchors: np.ndarray, norm: Norm) -> list[Shift]:
    """Returns the stretches in which one of the files is shifted.

    For each distance, the evidence that source i belongs to target i + distance, and
    not to target i, is how much likelier their lengths are together, and which numbers
    and names they share. The stretch with the greatest sum of evidence is shifted if
    that is beyond chance; then the pairs before and after it are searched.

    Args:
        lengths: int32 [N, 2], see `Measurements`.
        anchors: uint64 [N, 2], see `Measurements`.
        norm: what is normal.
    """
    shifts: list[Shift] = []
    distances = []
    for distance in range(1, _MAX_DISTANCE + 1):
        distances += [distance, -distance]
    stretches = [range(len(lengths))]
    while stretches:
        stretch = stretches.pop()
        candidates = []
        for distance in distances:
            best = _best_shift(lengths, anchors, stretch, distance, norm)
            candidates.append(best)
        evidence, shift = max(candidates)
        if evidence > max(_SHIFTED, _PER_LINE * (shift.stop - shift.start)):
            shifts.append(shift)
            stretches.append(range(stretch.start, shift.start))
            stretches.append(range(shift.stop, stretch.stop))
    return sorted(shifts)


def _best_shift(
    lengths: np.ndarray,
    anchors: np.ndarray,
    stretch: range,
    distance: int,
    norm: Norm,
) -> tuple[float, Shift]:
    """Returns the stretch with the most evidence for a distance, and the evidence.

    Args:
        lengths: int32 [N, 2], of all pairs.
        anchors: uint64 [N, 2], of all pairs.
        stretch: the pairs to look at.
        distance: see `Shift.lines`.
        norm: what is normal.
    """
    low = max(stretch.start, -distance)
    high = min(stretch.stop, len(lengths) - distance)
    if high - low < 2:
        return 0.0, Shift(0, 1, distance)
    source = slice(low, high)

    def evidence(target: slice) -> np.ndarray:
        shared = np.bitwise_count(anchors[source, 0] & anchors[target, 1])
        fit = norm.fit(lengths[source, 0], lengths[target, 1])
        return fit + _ANCHOR * np.minimum(shared, 3)

    shifted = slice(low + distance, high + distance)
    sums = np.cumsum(np.append(0.0, evidence(shifted) - evidence(source)))
    lowest = np.minimum.accumulate(sums)
    stop = int(np.argmax(sums - lowest))
    start = int(np.argmin(sums[: stop + 1]))
    return float(sums[stop] - sums[start]), Shift(low + start, low + stop, distance)
