"""Batches of inputs of similar length."""

from collections.abc import Sequence

import numpy as np

from t2t_keras.text.tokenizer import PAD

# On a CPU, with a thread for each: the operations of one step are too small to keep
# all cores busy.
MOST_BATCHES_AT_ONCE = 4


def batches(
    lengths: Sequence[int], batch_tokens: int, at_least: int = 1
) -> list[list[int]]:
    """Groups sequences of similar length; the longest come first.

    So a batch that does not fit into memory fails at once, and estimates of the time
    left are too high rather than too low. A sequence longer than `batch_tokens` gets a
    batch with nothing else in it.

    Args:
        lengths: the lengths of the sequences.
        batch_tokens: the largest number of positions in a batch, padding included.
        at_least: number of batches that are decoded at once; batches are made smaller
            where there would be fewer.

    Returns:
        The indices of the sequences in each batch.
    """
    if at_least > 1:
        positions = sum(map(_round_up, lengths))
        batch_tokens = min(batch_tokens, -(-positions // at_least))
    groups: list[list[int]] = []
    width = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not groups or (len(groups[-1]) + 1) * width > batch_tokens:
            groups.append([])
            width = _round_up(lengths[i])
        groups[-1].append(i)
    return groups


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the rows as one int32 array, padded with PAD to a multiple of 8.

    With few distinct widths, the device's libraries can reuse what they have prepared.
    """
    width = _round_up(max(map(len, rows)))
    array = np.full((len(rows), width), PAD, np.int32)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array


def _round_up(length: int) -> int:
    """Returns the next multiple of 8."""
    return -(-length // 8) * 8
