"""Positional encodings: sinusoids (3.5), and learned ones (Table 3)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.execution import current_execution
from t2t_keras.model.layers.base import Layer, serializable


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """Returns the paper's positional encoding (3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i / D)), PE(pos, 2i + 1) = cos(the same).

    Positions [...] are numbers, and D is even; the encodings [..., D] are float32.
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # [D / 2]
    angles = ops.cast(positions, "float32")[..., None] * rates.astype("float32")
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [..., D / 2, 2]
    return ops.reshape(pairs, (*ops.shape(positions), d_model))


@serializable
class LearnedPositions(Layer):
    """Learned positional embeddings (Table 3, row (E))."""

    def __init__(self, max_positions: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_positions = max_positions
        self.d_model = d_model

    def build(self, input_shape: Shape) -> None:
        """Creates the table."""
        self.table = self.add_weight(
            name="table",
            shape=(self.max_positions, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )

    def call(self, positions: Tensor) -> Tensor:
        """Embeds positions [...] as [..., D]; the last row is for all beyond it."""
        rows = ops.minimum(positions, self.max_positions - 1)
        if keras.backend.backend() == "tensorflow" and not current_execution().is_fused:
            # TensorFlow's kernels reshape int32 arrays of a GPU on the host.
            rows = ops.cast(rows, "int64")
        return ops.take(ops.convert_to_tensor(self.table), rows, axis=0)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        arguments = {"max_positions": self.max_positions, "d_model": self.d_model}
        return super().get_config() | arguments
