"""Positional encodings (3.5)."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops


def sinusoids(positions: Any, d_model: int) -> Any:
    """The paper's encoding.

    PE(pos, 2i) = sin(pos / 10000^(2i / D)), PE(pos, 2i + 1) = cos(the same).

    Args:
        positions: [T], numbers.
        d_model: D, even.

    Returns:
        [T, D], float32.
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = ops.cast(positions, "float32")[:, None] * rates.astype("float32")
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(pairs, (-1, d_model))


def t2t_timing_signal(positions: Any, d_model: int) -> Any:
    """tensor2tensor's encoding: first all sines, then all cosines.

    It also divides by D / 2 - 1 where the paper divides by D / 2, so that the longest
    wavelength is 10000 * 2 pi exactly.

    Args:
        positions: [T], numbers.
        d_model: D, even.

    Returns:
        [T, D], float32.
    """
    step = math.log(10000.0) / max(d_model // 2 - 1, 1)
    rates = np.exp(-step * np.arange(d_model // 2))
    angles = ops.cast(positions, "float32")[:, None] * rates.astype("float32")
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


class LearnedPositions(keras.layers.Layer):
    """A learned vector for each position: Table 3, row (E)."""

    def __init__(self, max_positions: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_positions = max_positions
        self.d_model = d_model

    def build(self, input_shape: Any = None) -> None:
        """Creates the table."""
        self.table = self.add_weight(
            name="table",
            shape=(self.max_positions, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )

    def call(self, positions: Any) -> Any:
        """Returns [T, D] of positions [T]; all beyond the table share its last row."""
        rows = ops.minimum(positions, self.max_positions - 1)
        return ops.take(ops.convert_to_tensor(self.table), rows, axis=0)
