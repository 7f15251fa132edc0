"""Embeddings and the pre-softmax linear map, on one matrix (3.4)."""

from typing import Any

import keras
from keras import ops


class Embedding(keras.layers.Layer):
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
        )

    def call(self, ids: Any) -> Any:
        """Returns embeddings [B, T, D] of ids [B, T], times sqrt(D).

        Padding (id 0) gives zero vectors; so the vector before the first target, which
        shifts the outputs by one position (3.1), is the embedding of padding.
        """
        is_token = ops.cast(ops.not_equal(ids, 0), self.compute_dtype)
        vectors = ops.take(ops.convert_to_tensor(self.table), ids, axis=0)
        vectors = ops.cast(vectors, self.compute_dtype)
        return vectors * (is_token * self.d_model**0.5)[..., None]

    def logits(self, x: Any) -> Any:
        """Returns float32 logits [..., V] of x [..., D]: x E^T, without sqrt(D)."""
        table = ops.cast(self.table, self.compute_dtype)
        shape = ops.shape(x)
        rows = ops.cast(ops.reshape(x, (-1, self.d_model)), self.compute_dtype)
        logits = ops.cast(ops.matmul(rows, ops.transpose(table)), "float32")
        return ops.reshape(logits, (*shape[:-1], self.vocab_size))
