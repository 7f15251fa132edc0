"""The residual connection around every sub-layer (3.1, 5.4)."""

from collections.abc import Callable
from typing import Any, Literal

import keras

from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer_norm import LayerNorm


class Residual(keras.layers.Layer):
    """LayerNorm(x + Dropout(Sublayer(x))), the paper's "post" norm.

    With "pre", tensor2tensor's later form: x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(
        self,
        d_model: int,
        dropout: float,
        norm: Literal["post", "pre"] = "post",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.norm_first = norm == "pre"
        self.norm = LayerNorm(d_model, name="norm")
        self.dropout = Dropout(dropout, name="dropout", dtype="float32")

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights of the normalisation."""
        self.norm.build(None)
        self.dropout.build(None)

    def call(self, x: Any, sublayer: Callable[[Any], Any], seed: Any = None) -> Any:
        """Applies a sub-layer, [B, T, D] -> [B, T, D], to x [B, T, D]."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)), seed=seed)
        return self.norm(x + self.dropout(sublayer(x), seed=seed))
