"""Packs pairs of sequences into rows: a bin packing with two sizes."""

from collections.abc import Iterable

import numpy as np

from t2t_keras.data.part_starts import part_starts

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
