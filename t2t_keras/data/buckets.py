"""tensor2tensor's batches: buckets of lengths, each with its own number of rows."""

import bisect
import functools

import numpy as np

from t2t_keras.data.batching import BatchPlan
from t2t_keras.hparam import Bucketing

_FIRST_BOUND = 8
_GROWTH = 1.1  # from one bound to the next
_MAX_LENGTH = 256  # `max_length` of tensor2tensor's sets


def batch_plan(
    bucketing: Bucketing,
    source_length: np.ndarray,
    target_length: np.ndarray,
    batch_tokens: int,
    seed: int,
) -> BatchPlan:
    """Returns the plan by the exact lengths, or by tensor2tensor's rule.

    Args:
        bucketing: as in `HParams`.
        source_length: see `BatchPlan`.
        target_length: see `BatchPlan`.
        batch_tokens: see `BatchPlan`.
        seed: see `BatchPlan`.
    """
    kind = {"exact": BatchPlan, "t2t": BucketPlan}[bucketing]
    return kind(source_length, target_length, batch_tokens, seed)


class BucketPlan(BatchPlan):
    """The batches of every epoch by tensor2tensor's rule; arguments as in `BatchPlan`.

    Pairs are shuffled and fall into buckets by the length of their longer side. A
    bucket gives a batch whenever it is full, and at the end of an epoch what is left in
    it (tensor2tensor knows no epochs and carries it over). Batches are shuffled.

    With batch_tokens = 8 x 4096 there is one bucket's batch for all of eight GPUs,
    where tensor2tensor rounds the rows for one GPU and takes eight times as many.
    """

    def largest_shape(self) -> tuple[int, int, int]:
        """Returns (rows, source length, target length) that no batch exceeds."""
        rows, sources, targets = self._bounds.T
        widths = sources + targets
        return tuple(self._bounds[np.lexsort((widths, rows * widths))[-1]].tolist())

    def _cut(self, batch_tokens: int) -> list[int]:
        longest = max(_MAX_LENGTH, int(self._longer.max()))
        bounds, rows = t2t_buckets(batch_tokens, longest)
        self._bucket = np.searchsorted(bounds, self._longer, side="right")
        order = np.argsort(self._bucket, kind="stable")
        sizes = np.bincount(self._bucket, minlength=len(rows))
        starts: list[int] = []
        shapes = []
        for size, step, end in zip(sizes, rows, np.cumsum(sizes), strict=True):
            if size:
                members = order[end - size : end]
                starts += range(end - size, end, step)
                sides = (self._source_length, self._target_length)
                shapes.append((min(size, step), *(s[members].max() for s in sides)))
        self._bounds = np.array(shapes)
        return starts

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        shuffled = rng.permutation(len(self._longer))
        return shuffled[np.argsort(self._bucket[shuffled], kind="stable")]


def t2t_buckets(batch_tokens: int, max_length: int) -> tuple[list[int], list[int]]:
    """Returns the bounds of the buckets, and the rows of a batch of each.

    Bucket i holds the pairs whose longer side has at least bounds[i - 1] tokens and
    fewer than bounds[i]; the last one has no upper bound but max_length. As many rows
    as are within the budget at the upper bound are rounded down to a divisor of a
    highly composite number, so that a window of that many pairs makes whole batches
    in every bucket.

    Args:
        batch_tokens: tensor2tensor's `batch_size`.
        max_length: of the longest pair.
    """
    bounds, bound = [], _FIRST_BOUND
    while bound < max_length:
        bounds.append(bound)
        bound = max(bound + 1, int(_GROWTH * bound))
    rows = [max(1, batch_tokens // upper) for upper in [*bounds, max_length]]
    window = _highly_composite(3 * max(rows))
    divisors = [n for n in range(1, window + 1) if window % n == 0]
    return bounds, [divisors[bisect.bisect_right(divisors, n) - 1] for n in rows]


@functools.cache
def _highly_composite(most: int) -> int:
    """Returns the highest number up to `most` with more divisors than all below it."""
    divisors = np.zeros(most + 1, np.int64)
    for n in range(1, most + 1):
        divisors[n::n] += 1
    before = np.maximum.accumulate(divisors)[:-1]
    return 1 + int(np.flatnonzero(divisors[1:] > before)[-1])
