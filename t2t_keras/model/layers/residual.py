"""The residual connection around a sub-layer (3.1, 5.4)."""

from typing import Any

import keras

from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers.base import Block, serializable
from t2t_keras.model.layers.dropout import Dropout
from t2t_keras.model.layers.dropout_keys import DropoutSeed


@serializable
class Residual(Block):
    """The residual connection around a sub-layer (3.1, 5.4).

    It is LayerNorm(x + Dropout(Sublayer(x))); with `norm_first`, as in later versions
    of tensor2tensor, it is x + Dropout(Sublayer(LayerNorm(x))):

        y = sublayer(residual.preprocess(x))
        x = residual.postprocess(x, y, seed)

    Args:
        norm: the normalization.
        dropout: dropout rate of the sub-layer's output.
        norm_first: whether the input of the sub-layer is normalized, not the sum.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        norm: keras.layers.Layer,
        dropout: float = 0.0,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dtype": "float32"} | kwargs)
        self.norm_first = norm_first
        self.norm = norm
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def preprocess(self, x: Tensor) -> Tensor:
        """Returns the sub-layer's input [B, T, D]."""
        return self.norm(x) if self.norm_first else x

    def postprocess(
        self, x: Tensor, y: Tensor, seed: DropoutSeed | None = None
    ) -> Tensor:
        """Adds the sub-layer's output y [B, T, D] to x [B, T, D]."""
        x = x + self.dropout(y, seed=seed)
        return x if self.norm_first else self.norm(x)

    def call(self, x: Tensor, y: Tensor, seed: DropoutSeed | None = None) -> Tensor:
        """Does the same as `postprocess`."""
        return self.postprocess(x, y, seed)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "norm": keras.saving.serialize_keras_object(self.norm),
            "dropout": self.dropout.rate,
            "norm_first": self.norm_first,
        }
