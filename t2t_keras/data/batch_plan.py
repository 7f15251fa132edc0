"""Plans batches from the lengths of the records, before any record is read.

Batches have the lengths of their records, those of tensor2tensor's buckets, or few
shapes, because XLA compiles the update once for each shape.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np

from t2t_keras.data.record_index import part_starts
from t2t_keras.errors import UserError, quantity


class BatchPlan:
    """The batches of every epoch, as a pure function of lengths, budget and seed.

    Pairs are ordered by length and cut into batches: rows times the longest sequence
    stays within the budget, on each side separately (paper, 5.1). Pairs of equal
    length are shuffled before the batches are cut, and the batches are shuffled
    afterwards, again in each epoch. The cuts depend on the lengths only, so all epochs
    have the same number of batches, and a training step determines its batch:
    epoch, i = divmod(step, len(plan)).

    Args:
        source_length: int [N], tokens of each record, EOS included.
        target_length: int [N]
        batch_tokens: the budget, in tokens with padding.
        seed: seed of both shuffles.
        swapped: whether the two sides are swapped (`RecordIndex.swapped`): the batches
            are the same in both directions.

    Raises:
        UserError: there is no record, the longest one exceeds the budget, or one has
            no token on a side.

    Attributes:
        packs_rows: whether a row may hold several pairs.
        shapes: rows, S and T of each batch, int64 [N, 3].
        padding_share: the share of padding on both sides in an epoch.
    """

    packs_rows = False

    def __init__(
        self,
        source_length: np.ndarray,
        target_length: np.ndarray,
        batch_tokens: int,
        seed: int,
        swapped: bool = False,
    ) -> None:
        self._seed = seed
        self._swapped = swapped
        self._source_length = source_length
        self._target_length = target_length
        self._longer = np.maximum(source_length, target_length)
        if not len(self._longer):
            raise UserError("there is no example to make a batch of")
        if self._longer.max() > batch_tokens:
            raise UserError(
                f"hparams: batch_tokens {batch_tokens} is less than the longest "
                f"example's {self._longer.max()} tokens; raise it, or lower the "
                "problem's max_length (--max_length) and generate the data again"
            )
        if not min(source_length.min(), target_length.min()):
            raise UserError(
                "an example has no token on one side, where data generation writes at "
                "least the end of the sentence; generate the data again"
            )
        # Indices of records take 4 bytes each, if they fit.
        self._dtype = np.int32 if len(self._longer) < 1 << 31 else np.int64
        self._starts = self._cut(batch_tokens)
        order = self._order(np.random.default_rng((seed, 0)))
        rows = np.diff([*self._starts, len(order)])
        self.shapes = self._shapes(rows, order, self._starts)
        padded = (self.shapes[:, :1] * self.shapes[:, 1:]).sum()
        self.padding_share = float(
            1 - (source_length.sum() + target_length.sum()) / padded
        )
        self._epoch = -1  # the epoch that `_batches` belong to
        self._batches = [np.empty(0, np.int64)]

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._starts)

    @property
    def summary(self) -> str:
        """The number of batches and their padding, for the user."""
        batches = quantity(len(self), "batches", "batch")
        return f"{batches} an epoch with {self.padding_share:.1%} padding"

    def records(self, step: int) -> np.ndarray:
        """Returns the records of the step's batch, int [pairs]."""
        epoch, i = divmod(step, len(self._starts))
        if epoch != self._epoch:
            self._batches = self._shuffled(np.random.default_rng((self._seed, epoch)))
            self._epoch = epoch
        return self._batches[i]

    def rows(self, step: int) -> np.ndarray:
        """Returns the row of each record of the step's batch, ascending."""
        return np.arange(len(self.records(step)))

    def shape(self, records: np.ndarray) -> tuple[int, int, int]:
        """Returns the rows, S and T to which the batch of some records is padded."""
        source = int(self._source_length[records].max())
        target = int(self._target_length[records].max())
        return len(records), source, target

    def largest_shape(
        self, memory: Callable[[tuple[int, int, int]], float]
    ) -> tuple[int, int, int]:
        """Returns the shape of a batch that takes the most memory.

        Args:
            memory: what an update by a batch of (rows, source length, target length)
                takes.
        """
        shapes = np.unique(self._bounds, axis=0).tolist()
        return max(map(tuple, shapes), key=memory)

    @property
    def _bounds(self) -> np.ndarray:
        """Shapes that no batch exceeds, int64 [N, 3]."""
        return self.shapes

    def _shapes(
        self, rows: np.ndarray, order: np.ndarray, starts: Sequence[int] | np.ndarray
    ) -> np.ndarray:
        """Returns rows, longest source and target of each part of `order`: [N, 3]."""
        source = np.maximum.reduceat(self._source_length[order], starts)
        target = np.maximum.reduceat(self._target_length[order], starts)
        return np.stack([rows, source, target], axis=1)

    def _cut(self, batch_tokens: int) -> list[int]:
        """Returns where in the order of an epoch batches start, from 0."""
        lengths = np.sort(self._longer)
        starts = []
        start = 0
        while start < len(lengths):
            starts.append(start)
            max_rows = batch_tokens // int(lengths[start])
            window = lengths[start : start + max_rows]
            fits = np.arange(1, len(window) + 1) * window <= batch_tokens
            start += int(fits.sum())  # what fits is a prefix, since lengths ascend
        return starts

    def _shuffled(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Returns the records of each batch of an epoch."""
        batches = np.split(self._order(rng), self._starts[1:])
        return [batches[k] for k in rng.permutation(len(batches))]

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        """Returns the records of an epoch in the order in which they are cut."""
        # Among equals, from longer sources to longer targets and back again, so that
        # neighbours have similar lengths on both sides, which saves padding.
        sign = (-1) ** (self._longer + self._swapped)
        slant = (self._target_length - self._source_length) * sign
        shuffled = rng.permutation(len(self._longer)).astype(self._dtype)
        return np.lexsort((shuffled, slant, self._longer)).astype(self._dtype)


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


# Limits of `StaticShapePlan`.
_MAX_SHAPES = 12
_MULTIPLE = 8  # Lengths are rounded up to it: GPUs' matrix units take eight rows.


class StaticShapePlan(BucketPlan):
    """The batches of every epoch in at most twelve shapes; arguments as in `BatchPlan`.

    XLA compiles a graph for every shape of its inputs. Here all batches of a bucket
    have one shape: its longest source and target, rounded up to a multiple of 8 (if the
    budget allows), and the same number of rows, for which the last one is filled up
    with empty rows. The buckets minimize the padding of an epoch.
    """

    def shape(self, records: np.ndarray) -> tuple[int, int, int]:
        """Returns the rows, S and T to which the batch of some records is padded."""
        rows, source, target = self._bucket_shapes[self._bucket[records[0]]].tolist()
        return rows, source, target

    def _cut(self, batch_tokens: int) -> list[int]:
        lengths = np.stack([self._source_length, self._target_length], axis=1)
        rounded = -(-lengths // _MULTIPLE) * _MULTIPLE
        _, bucket, sizes = np.unique(
            rounded.max(axis=1), return_inverse=True, return_counts=True
        )
        longest = np.zeros((len(sizes), 2), np.int64)
        np.maximum.at(longest, bucket, np.minimum(rounded, batch_tokens))
        merged = least_padding(sizes, longest, batch_tokens)
        self._bucket = merged[bucket]
        firsts = np.flatnonzero(np.diff(merged, prepend=-1))
        sizes = np.add.reduceat(sizes, firsts)
        longest = np.maximum.reduceat(longest, firsts)
        rows = _even_rows(sizes, longest, batch_tokens)
        self._bucket_shapes = np.column_stack([rows, longest])
        return batch_starts(sizes, rows)

    def _shapes(
        self, rows: np.ndarray, order: np.ndarray, starts: Sequence[int] | np.ndarray
    ) -> np.ndarray:
        return self._bucket_shapes[self._bucket[order[starts]]]


def least_padding(
    sizes: np.ndarray,
    longest: np.ndarray,
    batch_tokens: int,
    max_buckets: int = _MAX_SHAPES,
) -> np.ndarray:
    """Merges neighbouring buckets so that the padded batches have the fewest tokens.

    Args:
        sizes: the number of pairs in each bucket, int64 [N].
        longest: the longest source and target of each bucket, int64 [N, 2].
        batch_tokens: the budget of a batch.
        max_buckets: how many buckets may be left.

    Returns:
        The index of the merged bucket that each bucket is in, int64 [N].
    """
    count = len(sizes)
    # cost[i, j]: the tokens of the batches of buckets i to j, merged.
    cost = np.full((count, count), np.inf)
    for i in range(count):
        sides = np.maximum.accumulate(longest[i:])
        pairs = np.cumsum(sizes[i:])
        rows = _even_rows(pairs, sides, batch_tokens)
        cost[i, i:] = -(-pairs // rows) * rows * sides.sum(axis=1)
    # Of the first j buckets, merged into at most k: the fewest tokens, and how many
    # buckets each of the merged ones has.
    best = np.array([0.0] + [np.inf] * count)
    parts: list[list[int]] = [[] for _ in range(count + 1)]
    for _ in range(min(max_buckets, count)):
        totals = best[:-1, None] + cost
        best = np.concatenate([[0.0], totals.min(axis=0)])
        firsts = totals.argmin(axis=0).tolist()  # of the last merged bucket
        parts = [[], *([*parts[i], j + 1 - i] for j, i in enumerate(firsts))]
    return np.repeat(np.arange(len(parts[-1])), parts[-1])


def _even_rows(sizes: np.ndarray, longest: np.ndarray, batch_tokens: int) -> np.ndarray:
    """Returns the rows of the batches of each bucket: as few batches as possible.

    With the same number of rows in all batches of a bucket, the last one has fewer
    empty rows than there are batches.

    Args:
        sizes: the number of pairs in each bucket, int64 [N].
        longest: the longest source and target of each bucket, int64 [N, 2].
        batch_tokens: the budget of a batch.
    """
    batches = -(-sizes // (batch_tokens // longest.max(axis=1)))
    return -(-sizes // batches)
