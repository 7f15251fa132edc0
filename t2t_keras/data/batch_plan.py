"""Plans batches from the lengths of the records, before any record is read."""

from collections.abc import Callable, Sequence

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.quantity import quantity


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
        UserError: there is no record, or the longest one exceeds the budget.

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
