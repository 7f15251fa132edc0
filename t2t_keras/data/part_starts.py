"""Where the parts of an array start."""

import numpy as np


def part_starts(sizes: np.ndarray) -> np.ndarray:
    """Returns where parts of these sizes start, one after the other, from 0: [N].

    Args:
        sizes: int [N].
    """
    return np.cumsum(sizes) - sizes
