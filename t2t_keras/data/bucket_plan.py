"""Batches by tensor2tensor's buckets."""

import functools
from collections.abc import Sequence

import numpy as np

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.part_starts import part_starts

# tensor2tensor's buckets.
_FIRST_BOUND = 8
_GROWTH = 1.1  # from one bound to the next
_MAX_LENGTH = 256  # `max_length` of tensor2tensor's hparam sets


class BucketPlan(BatchPlan):
    """The batches of every epoch by tensor2tensor's rule; arguments as in `BatchPlan`.

    Pairs are shuffled and fall into buckets by the length of their longer side. A
    bucket yields a batch whenever it is full, and yields the rest at the end of an
    epoch (tensor2tensor has no epochs and carries the rest over). Batches are shuffled.

    With batch_tokens = 8 x 4096 one batch of a bucket serves all of eight GPUs, where
    tensor2tensor rounds the rows for one GPU and takes eight times as many.
    """

    @property
    def _bounds(self) -> np.ndarray:
        return self._bucket_shapes

    def _cut(self, batch_tokens: int) -> list[int]:
        longest = max(_MAX_LENGTH, int(self._longer.max()))
        bounds, rows = t2t_buckets(batch_tokens, longest)
        self._bucket = np.searchsorted(bounds, self._longer, side="right")
        order = np.argsort(self._bucket, kind="stable")
        sizes = np.bincount(self._bucket, minlength=len(rows))
        firsts = part_starts(sizes)
        used = np.flatnonzero(sizes)
        self._bucket_shapes = self._shapes(
            np.minimum(sizes, rows)[used], order, firsts[used]
        )
        return batch_starts(sizes, rows)

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        shuffled = rng.permutation(len(self._longer)).astype(self._dtype)
        return shuffled[np.argsort(self._bucket[shuffled], kind="stable")]


def batch_starts(sizes: np.ndarray, rows: Sequence[int] | np.ndarray) -> list[int]:
    """Returns where batches start in records in the order of their buckets.

    Args:
        sizes: the number of records in each bucket.
        rows: the number of records in a batch of each bucket.
    """
    bucket_starts = part_starts(sizes)
    starts: list[int] = []
    for start, size, step in zip(
        bucket_starts.tolist(), sizes.tolist(), rows, strict=True
    ):
        starts += range(start, start + size, step)
    return starts


def t2t_buckets(batch_tokens: int, max_length: int) -> tuple[list[int], list[int]]:
    """Returns the bounds of the buckets, and the rows of a batch of each bucket.

    Bucket i holds the pairs whose longer side has at least bounds[i - 1] tokens and
    fewer than bounds[i]; the last one has no upper bound but max_length. The rows that
    fit into the budget at the upper bound are rounded down to a divisor of a highly
    composite number, so that a window of that many pairs makes whole batches in every
    bucket.

    Args:
        batch_tokens: tensor2tensor's `batch_size`.
        max_length: length of the longest pair.
    """
    bounds = []
    bound = _FIRST_BOUND
    while bound < max_length:
        bounds.append(bound)
        bound = max(bound + 1, int(_GROWTH * bound))
    max_rows = [max(1, batch_tokens // upper) for upper in [*bounds, max_length]]
    window = _highly_composite(3 * max(max_rows))
    rows = []
    for limit in max_rows:
        while window % limit:
            limit -= 1
        rows.append(limit)
    return bounds, rows


@functools.cache
def _highly_composite(limit: int) -> int:
    """Returns the highest number up to a limit with more divisors than all below it."""
    divisors = np.zeros(limit + 1, np.int64)
    for n in range(1, limit + 1):
        divisors[n::n] += 1
    previous_max = np.maximum.accumulate(divisors)[:-1]
    return 1 + int(np.flatnonzero(divisors[1:] > previous_max)[-1])
