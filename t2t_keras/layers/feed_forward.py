"""Position-wise feed-forward network (3.3)."""

from typing import Any

import keras
from keras import ops

from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.linear import Linear


class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, the same at every position."""

    def __init__(
        self, d_model: int, d_ff: int, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.d_ff = d_ff
        self.inner = Linear(d_ff, name="inner", dtype=self.dtype_policy)
        self.outer = Linear(d_model, name="outer", dtype=self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights."""
        self.inner.build((None, self.d_model))
        self.outer.build((None, self.d_ff))
        self.dropout.build(None)

    def call(self, x: Any, seed: Any = None) -> Any:
        """Maps [B, T, D] to [B, T, D]; `seed` is of dropout, None at inference."""
        return self.outer(self.dropout(ops.relu(self.inner(x)), seed=seed))
