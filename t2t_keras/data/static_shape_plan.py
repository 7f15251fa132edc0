"""Batches of few shapes, because XLA compiles the update once for each shape."""

from collections.abc import Sequence

import numpy as np

from t2t_keras.data.bucket_plan import BucketPlan, batch_starts

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
