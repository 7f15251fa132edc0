"""The embedding, whose matrix also maps to logits (3.4)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras.model.backend import (
    Layer,
    Shape,
    Tensor,
    at_least_float32,
    serializable,
    to_ids,
)
from t2t_keras.model.execution import fill_block, on_device
from t2t_keras.model.layers.linear import Kernels


@serializable
class Embedding(Layer):
    """One matrix [V, D] that embeds ids and projects back to logits (3.4).

    It is initialized from N(0, 1 / D), so that the embeddings times sqrt(D) and the
    logits have variance one (tensor2tensor's choice; the paper names none).
    """

    def __init__(self, vocab_size: int, d_model: int, **kwargs: Any) -> None:
        # In 16 bits, Keras would round the ids of a float32 input.
        super().__init__(autocast=False, **kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model

    def build(self, input_shape: Shape) -> None:
        """Creates the matrix."""
        self.table = self.add_weight(
            name="table",
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            autocast=False,  # A look-up must not cast the whole table.
        )

    def call(self, ids: Tensor) -> Tensor:
        """Returns embeddings [..., D] of ids [...], times sqrt(D).

        They have the dtype of the matrix, float32 also with a mixed policy. Padding
        (id 0) is embedded as zeros, and so is the decoder's first input, which shifts
        the outputs by one position (3.1).
        """
        ids = to_ids(ids)
        vectors = ops.take(ops.convert_to_tensor(self.table), ids, axis=0)  # [..., D]
        factor = ops.convert_to_tensor(self.d_model**0.5, vectors.dtype)
        scale = ops.where(ops.not_equal(ids, 0), factor, 0.0)  # [...]
        return vectors * ops.expand_dims(scale, -1)

    def compute_mask(
        self, inputs: Tensor, previous_mask: Tensor | None = None
    ) -> Tensor:
        """Returns the mask of the output, true where there is a token (an id not 0)."""
        return ops.not_equal(inputs, 0)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns [..., D]."""
        return (*input_shape, self.d_model)

    def cast_kernel(self) -> Tensor:
        """Returns the table in the compute dtype, zero-padded to whole blocks."""
        table = ops.cast(self.table, self.compute_dtype)
        return fill_block(table, ops.zeros_like(table[:1]))

    def logits(self, x: Tensor, kernels: Kernels | None = None) -> Tensor:
        """Returns the logits x E^T, [..., V], at least float32, of x [..., D]."""
        shape = ops.shape(x)
        table = self.cast_kernel() if kernels is None else kernels[self.path]
        x = ops.cast(ops.reshape(x, (-1, self.d_model)), self.compute_dtype)  # [N, D]
        logits = ops.matmul(x, ops.transpose(table))  # [N, whole blocks]
        if logits.shape[1] != self.vocab_size:
            logits = logits[:, : self.vocab_size]  # [N, V]
        logits = at_least_float32(logits)
        return ops.reshape(logits, (*shape[:-1], self.vocab_size))

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        arguments = {"vocab_size": self.vocab_size, "d_model": self.d_model}
        return super().get_config() | arguments


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
        super().__init__(autocast=False, **kwargs)
        self.max_positions = max_positions
        self.d_model = d_model

    def build(self, input_shape: Shape) -> None:
        """Creates the table."""
        self.table = self.add_weight(
            name="table",
            shape=(self.max_positions, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            autocast=False,  # A look-up must not cast the whole table.
        )

    def call(self, positions: Tensor) -> Tensor:
        """Embeds positions [...] as [..., D]; the last row is for all beyond it."""
        rows = ops.minimum(to_ids(positions), self.max_positions - 1)
        rows = on_device(rows)
        vectors = ops.take(ops.convert_to_tensor(self.table), rows, axis=0)
        return ops.cast(vectors, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns [..., D]."""
        return (*input_shape, self.d_model)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        arguments = {"max_positions": self.max_positions, "d_model": self.d_model}
        return super().get_config() | arguments
