"""Batches of packed rows: all have one shape, so that XLA compiles the update once."""

import math
from collections.abc import Sequence

import numpy as np

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.part_starts import part_starts
from t2t_keras.data.row_packing import pack_rows, row_counts, row_length_choices
from t2t_keras.quantity import quantity

_MAX_PADDING = 0.03
_MAX_ESTIMATE = 0.028  # of the padding, by a sample
_SAMPLE = 8192  # pairs by which the length of the rows is chosen
_EVEN = 8  # From 64 on, the number of rows in a batch is a multiple: for eight GPUs.


class PackedPlan(BatchPlan):
    """Batches whose rows hold several pairs each; arguments as in `BatchPlan`.

    Source and target of a pair lie in the same row. Rows have the smallest lengths that
    fit the longest pair and leave at most 3% of padding, since the time of attention
    grows with them.

    How many pairs of which lengths share a row follows from the lengths and the seed.
    It is the same in all epochs, which therefore have the same number of batches. In
    each epoch, pairs of equal lengths are shuffled among their places, and rows among
    the batches.
    """

    packs_rows = True

    @property
    def summary(self) -> str:
        """The number of batches, their padding and their shape, for the user."""
        rows, source, target = self._shape
        packed = quantity(rows, "packed rows")
        return f"{super().summary}, {packed} of {source:,} and {target:,} tokens"

    def rows(self, step: int) -> np.ndarray:
        """Returns the row of each record of the step's batch, int64 [pairs]."""
        self.records(step)  # which shuffles the epoch's rows
        num_rows = self._shape[0]
        start = step % len(self) * num_rows
        sizes = self._shuffled_sizes[start : start + num_rows]
        return np.repeat(np.arange(len(sizes)), sizes)

    def shape(self, records: np.ndarray) -> tuple[int, int, int]:
        """Returns the rows, S and T of every batch."""
        del records
        return self._shape

    def _cut(self, batch_tokens: int) -> list[int]:
        # Both directions of the data are packed in the same way.
        sides = (self._source_length, self._target_length)
        lengths = np.stack(sides[:: -1 if self._swapped else 1], axis=1)  # [N, 2]
        order = np.random.default_rng(self._seed).permutation(len(lengths))
        lengths = lengths[order]
        row, row_lengths = _pack(lengths, batch_tokens)
        # Slots are the places of pairs in the rows, one row after the other. Pairs of
        # the same cell, which have equal lengths, may change places.
        slots = np.argsort(row, kind="stable")
        cell = (
            lengths[:, 0].astype(np.int64) * (1 + lengths[:, 1].max()) + lengths[:, 1]
        )
        self._cell = np.empty_like(cell)
        self._cell[order] = cell
        self._slot_of_cell = np.argsort(cell[slots], kind="stable").astype(self._dtype)
        self._row_sizes = np.bincount(row)  # pairs
        self._shuffled_sizes = self._row_sizes
        rows = _rows_of_batch(len(self._row_sizes), batch_tokens, row_lengths)
        source, target = row_lengths[:: -1 if self._swapped else 1]
        self._shape = (rows, source, target)
        return part_starts(self._row_sizes)[::rows].tolist()

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        shuffled = rng.permutation(len(self._cell)).astype(self._dtype)
        order = np.empty_like(shuffled)
        order[self._slot_of_cell] = shuffled[
            np.argsort(self._cell[shuffled], kind="stable")
        ]
        return order

    def _shuffled(self, rng: np.random.Generator) -> list[np.ndarray]:
        order = self._order(rng)
        starts = part_starts(self._row_sizes)
        row = rng.permutation(len(starts))
        sizes = self._row_sizes[row]
        new_starts = part_starts(sizes)
        slots = np.arange(len(order)) + np.repeat(starts[row] - new_starts, sizes)
        self._shuffled_sizes = sizes
        return np.split(order[slots], new_starts[:: self._shape[0]][1:])

    def _shapes(
        self, rows: np.ndarray, order: np.ndarray, starts: Sequence[int] | np.ndarray
    ) -> np.ndarray:
        return np.tile(self._shape, (len(starts), 1))


def _pack(lengths: np.ndarray, batch_tokens: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Returns the row of each pair, int64 [N], and the lengths S and T of the rows.

    Args:
        lengths: tokens of each pair on both sides, int [N, 2], in random order.
        batch_tokens: the budget of a batch.
    """

    def padding(all_rows: int, row_lengths: tuple[int, int]) -> float:
        rows = _rows_of_batch(all_rows, batch_tokens, row_lengths)
        slots = -(-all_rows // rows) * rows * sum(row_lengths)
        return 1 - int(lengths.sum()) / slots

    sample = lengths[:_SAMPLE]
    choices = row_length_choices(lengths, batch_tokens)
    counts = row_counts(sample, choices) * len(lengths) / len(sample)
    estimates = []
    for row_lengths, count in zip(choices, counts, strict=True):
        estimates.append(padding(math.ceil(count), row_lengths))
        if estimates[-1] <= _MAX_ESTIMATE:
            row = pack_rows(lengths, row_lengths)
            if padding(int(row.max()) + 1, row_lengths) <= _MAX_PADDING:
                return row, row_lengths
    row_lengths = choices[int(np.argmin(estimates))]
    return pack_rows(lengths, row_lengths), row_lengths


def _rows_of_batch(
    all_rows: int, batch_tokens: int, row_lengths: tuple[int, int]
) -> int:
    """Returns the number of rows of each batch: as few batches as possible.

    With the same number in all batches, the last one has fewer empty rows than there
    are batches.
    """
    limit = batch_tokens // max(row_lengths)
    if limit >= 8 * _EVEN:
        limit -= limit % _EVEN
    batches = -(-all_rows // limit)
    return -(-all_rows // batches)
