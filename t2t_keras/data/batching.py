"""Which records make up which batch: planned from lengths alone, before any is read."""

import numpy as np

from t2t_keras.errors import UserError


class BatchPlan:
    """The batches of every epoch, as a pure function of lengths, budget and seed.

    Pairs are ordered by length and cut into batches: rows times the longest sequence
    stays within the budget, on each side separately (paper, 5.1). Pairs of equal
    length are shuffled before they are cut, the batches afterwards; both anew in each
    epoch. The cuts depend on the lengths only, so all epochs have the same number of
    batches, and a step of training names its batch: epoch, i = divmod(step, len(plan)).

    Args:
        source_length: int [N], tokens of each record, EOS included.
        target_length: int [N]
        batch_tokens: the budget.
        seed: of both shuffles.

    Raises:
        UserError: there is no record, or the longest one exceeds the budget.
    """

    def __init__(
        self,
        source_length: np.ndarray,
        target_length: np.ndarray,
        batch_tokens: int,
        seed: int,
    ) -> None:
        self._seed = seed
        self._source_length, self._target_length = source_length, target_length
        self._longer = np.maximum(source_length, target_length)
        # Among equals, from longer sources to longer targets and back again, so that
        # neighbours are alike on both sides: less padding.
        self._slant = (target_length - source_length) * (-1) ** self._longer
        if not len(self._longer):
            raise UserError("there is no example to make a batch of")
        if self._longer.max() > batch_tokens:
            raise UserError(
                f"hparams: batch_tokens {batch_tokens} is less than the longest "
                f"example's {self._longer.max()} tokens; raise it, or lower the "
                "problem's max_length (--max_length) and generate the data again"
            )
        self._starts = self._cut(batch_tokens)
        order = self._order(np.random.default_rng((seed, 0)))
        ends = [*self._starts[1:], len(order)]
        self.shapes = np.array(
            [
                (
                    end - start,
                    source_length[order[start:end]].max(),
                    target_length[order[start:end]].max(),
                )
                for start, end in zip(self._starts, ends, strict=True)
            ]
        )
        padded = (self.shapes[:, :1] * self.shapes[:, 1:]).sum()
        self.padding_share = float(
            1 - (source_length.sum() + target_length.sum()) / padded
        )
        self._epoch, self._batches = -1, [np.empty(0, np.int64)]

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._starts)

    def records(self, step: int) -> np.ndarray:
        """Returns the records, int64 [rows], of the step's batch."""
        epoch, i = divmod(step, len(self))
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._plan(epoch)
        return self._batches[i]

    def largest_shape(self) -> tuple[int, int, int]:
        """Returns (rows, source length, target length) of the largest batch."""
        shapes = map(tuple, self.shapes.tolist())
        return max(shapes, key=lambda s: (s[0] * (s[1] + s[2]), s[1] + s[2]))

    def _plan(self, epoch: int) -> list[np.ndarray]:
        """Returns the records of each batch of an epoch."""
        rng = np.random.default_rng((self._seed, epoch))
        batches = np.split(self._order(rng), self._starts[1:])
        return [batches[i] for i in rng.permutation(len(batches))]

    def _cut(self, batch_tokens: int) -> list[int]:
        """Returns where in the order of an epoch batches start, from 0."""
        return _cut(np.sort(self._longer), batch_tokens)

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        """Returns the records of an epoch in the order in which they are cut."""
        shuffled = rng.permutation(len(self._longer))
        return np.lexsort((shuffled, self._slant, self._longer))


def _cut(lengths: np.ndarray, batch_tokens: int) -> list[int]:
    """Returns where batches start, taking as many ascending lengths as fit each."""
    starts, start = [], 0
    while start < len(lengths):
        starts.append(start)
        most = batch_tokens // int(lengths[start])
        window = lengths[start : start + most]
        fits = np.arange(1, len(window) + 1) * window <= batch_tokens
        start += int(fits.sum())  # what fits is a prefix, for lengths ascend
    return starts
