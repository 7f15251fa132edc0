"""Embeddings and the pre-softmax linear map, on one matrix (3.4)."""

from typing import Any

import keras
from keras import ops

from t2t_keras.layers.matrix import HasMatrix


class Embedding(HasMatrix, keras.layers.Layer):
    """One matrix [V, D] that embeds ids and projects back to logits.

    Begins as N(0, d_model^-0.5), so that embeddings times sqrt(d_model) have variance
    one and so have the logits (tensor2tensor's choice; the paper names none).
    """

    def __init__(self, vocab_size: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model

    def build(self, input_shape: Any = None) -> None:
        """Creates the matrix."""
        self.table = self.add_weight(
            name="table",
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            autocast=False,  # not the whole table for the few rows looked up
        )

    def call(self, ids: Any) -> Any:
        """Returns float32 embeddings [B, T, D] of ids [B, T], times sqrt(D).

        Padding (id 0) gives zero vectors; so the vector before the first target, which
        shifts the outputs by one position (3.1), is the embedding of padding.
        """
        is_token = ops.cast(ops.not_equal(ids, 0), "float32")
        vectors = ops.take(ops.convert_to_tensor(self.table), ids, axis=0)
        return vectors * (is_token * self.d_model**0.5)[..., None]

    def matrix(self) -> Any:
        """Returns the table [V, D] in the compute dtype."""
        return self.held_or_cast(self.table)

    def logits(self, x: Any) -> Any:
        """Returns float32 logits [..., V] of x [..., D]: x E^T, without sqrt(D)."""
        shape = ops.shape(x)
        rows = ops.cast(ops.reshape(x, (-1, self.d_model)), self.compute_dtype)
        logits = ops.cast(ops.matmul(rows, ops.transpose(self.matrix())), "float32")
        return ops.reshape(logits, (*shape[:-1], self.vocab_size))
