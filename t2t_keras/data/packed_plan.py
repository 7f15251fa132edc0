"""Batches of packed rows: all have one shape, so that XLA compiles the update once.

Packing pairs of sequences into rows is a bin packing with two sizes.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.record_index import part_starts
from t2t_keras.errors import quantity

_BUFFER = 256  # pairs among which the next one of a row is chosen
_STREAM = 8192  # pairs, about: longer streams leave fewer unfilled rows at their end
_MAX_STREAMS = 1024
_MULTIPLE = 8  # Lengths of rows are multiples: GPUs' matrix units take eight rows.
_GROWTH = 1.05  # from one length of rows to the next that is tried
_MAX_FACTOR = 8  # longest rows that are tried, in multiples of the longest pair


def pack_rows(lengths: np.ndarray, row_lengths: tuple[int, int]) -> np.ndarray:
    """Returns the row, int64 [N], of each pair; rows are numbered from 0.

    Long lists are divided into streams that fill their rows at the same time. In each
    stream, pairs come in their order into a buffer of 256. A row takes them in turn
    until it is half full ("first fit"), and then the one that leaves the least space on
    the side that has more of it ("best fit"), until none fits.

    Args:
        lengths: tokens of source and target of each pair, int [N, 2].
        row_lengths: S and T of a row, at least those of the longest pair.
    """
    count = len(lengths)
    streams = min(max(count // _STREAM, 1), _MAX_STREAMS)
    size = -(-count // streams)
    padded = np.pad(lengths, [(0, streams * size - count), (0, 0)])
    rows = _fill(padded.reshape(streams, size, 2), np.tile(row_lengths, (streams, 1)))
    counts = rows.max(axis=1) + 1
    rows += part_starts(counts)[:, None]
    return rows.reshape(-1)[:count]


def row_counts(
    lengths: np.ndarray, row_lengths: Iterable[tuple[int, int]]
) -> np.ndarray:
    """Returns how many rows of each of several lengths the pairs fill, int64 [K].

    The arguments are those of `pack_rows`, for K lengths of rows.
    """
    limits = np.array(list(row_lengths))
    pairs = np.broadcast_to(lengths, (len(limits), *lengths.shape))
    return _fill(pairs, limits).max(axis=1) + 1


def row_length_choices(lengths: np.ndarray, max_length: int) -> list[tuple[int, int]]:
    """Returns lengths S and T of rows to choose from, ascending.

    Their ratio is about that of all source tokens to all target tokens. If rows of
    this ratio that hold the longest pair exceed the budget, for instance with long
    sources, targets of one word and one long target, the last choice spends the whole
    budget on the side with more tokens.

    Args:
        lengths: see `pack_rows`.
        max_length: the largest S and T.
    """
    longest = np.minimum(-(-lengths.max(axis=0) // _MULTIPLE) * _MULTIPLE, max_length)
    source_share, target_share = lengths.sum(axis=0) / lengths.sum()
    scale = (longest / (source_share, target_share)).max()  # S + T
    choices = {(int(longest[0]), int(longest[1])): None}
    fullest = _MULTIPLE * np.round(
        scale * np.array([source_share, target_share]) / _MULTIPLE
    )
    if fullest.max() > max_length:
        limit = max_length // _MULTIPLE * _MULTIPLE
        sides = np.maximum(np.minimum(fullest, limit), longest)
        choices[int(sides[0]), int(sides[1])] = None
    stop = _MAX_FACTOR * scale
    while scale <= stop:
        for rounded in (np.floor, np.ceil):
            source = _MULTIPLE * round(scale * source_share / _MULTIPLE)
            target = _MULTIPLE * int(rounded(scale * target_share / _MULTIPLE))
            sides = np.maximum((source, target), longest)
            if sides.max() <= max_length:
                choices[int(sides[0]), int(sides[1])] = None
        scale = max(scale + 2 * _MULTIPLE, scale * _GROWTH)
    return list(choices)


def _fill(lengths: np.ndarray, row_lengths: np.ndarray) -> np.ndarray:
    """Returns the row of each pair in each stream, int64 [K, N], by `pack_rows`'s rule.

    Args:
        lengths: int [K, N, 2]; pairs of length 0 end a stream.
        row_lengths: S and T of the rows of each stream, int [K, 2].
    """
    # Tokens are counted in such units that both sides of a row have the same length.
    capacity = np.lcm.reduce(row_lengths, axis=1)  # [K]
    units = capacity[:, None] // row_lengths  # [K, 2]
    # In unsigned integers, a pair that does not fit leaves a number above `absent`, and
    # so does the pair of length `absent`.
    dtypes = (np.uint16, np.uint32, np.uint64)
    dtype = next(d for d in dtypes if capacity.max() < np.iinfo(d).max // 2)
    absent = np.iinfo(dtype).max // 2
    streams, size = lengths.shape[:2]
    pairs = np.full((2, streams, size + 1), absent, dtype)
    scaled = np.where(lengths, lengths * units[:, None], absent)
    pairs[:, :, :size] = scaled.transpose(2, 0, 1)
    rows = np.zeros((streams, size + 1), np.int64)
    row = np.zeros(streams, np.int64)
    free = np.tile(capacity.astype(dtype), (2, 1))  # [2, K]
    half = capacity // 2
    stream_ids = np.arange(streams)
    seen = np.full(streams, min(_BUFFER, size))
    buffer = np.tile(np.arange(seen[0]), (streams, 1))  # [K, 256]
    source, target = pairs[:, :, : seen[0]].copy()  # of the pairs in the buffers
    turn = np.zeros(streams, np.int64)
    unpacked = np.count_nonzero(lengths[:, :, 0])
    while unpacked:
        space = np.maximum(free[0, :, None] - source, free[1, :, None] - target)
        is_first_fit = (space[stream_ids, turn] <= absent) & (free.min(axis=0) > half)
        choice = np.where(is_first_fit, turn, space.argmin(axis=1))  # [K]
        turn = (turn + is_first_fit) % len(source[0])
        fits = space[stream_ids, choice] <= absent
        k = stream_ids[fits]
        choice = choice[fits]
        pair = buffer[k, choice]
        rows[k, pair] = row[k]
        free[:, k] -= pairs[:, k, pair]
        new = seen[k]
        buffer[k, choice] = new
        source[k, choice] = pairs[0, k, new]
        target[k, choice] = pairs[1, k, new]
        seen[k] = np.minimum(new + 1, size)
        unpacked -= len(k)
        free[:, ~fits] = capacity[~fits]
        row[~fits] += 1
    return rows[:, :size]


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
