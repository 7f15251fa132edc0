"""Inputs of any length as batches of like length."""

from collections.abc import Sequence

import numpy as np

from t2t_keras.text.tokenizer import PAD


def batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Groups sequences of like length; the longest come first.

    So what does not fit into memory fails at once, and time estimates err on the safe
    side. A sequence longer than the budget is a batch of its own.

    Args:
        lengths: of the sequences.
        batch_tokens: most places of a batch, padding included.

    Returns:
        The numbers of the sequences in each batch.
    """
    groups: list[list[int]] = []
    width = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not groups or (len(groups[-1]) + 1) * width > batch_tokens:
            groups.append([])
            width = _round_up(lengths[i])
        groups[-1].append(i)
    return groups


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the rows as one int32 array, padded with PAD to a round width.

    Few distinct widths let the device's libraries reuse what they prepared.
    """
    width = _round_up(max(map(len, rows)))
    array = np.full((len(rows), width), PAD, np.int32)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array


def _round_up(length: int) -> int:
    """Returns the next multiple of 8."""
    return -(-length // 8) * 8
