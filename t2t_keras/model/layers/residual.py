"""The residual connection around a sub-layer (3.1, 5.4)."""

from typing import Any

import keras
from keras import ops

from t2t_keras.model.backend import (
    Block,
    Layer,
    Shape,
    Tensor,
    at_least_float32,
    serializable,
)
from t2t_keras.model.execution import normalize
from t2t_keras.model.layers.dropout import Dropout, DropoutSeed, training_seed


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
        x = ops.cast(x, self.compute_dtype) + self.dropout(y, seed=seed)
        return x if self.norm_first else self.norm(x)

    def call(
        self,
        x: Tensor,
        y: Tensor,
        seed: DropoutSeed | None = None,
        training: bool = False,
    ) -> Tensor:
        """Does the same as `postprocess`; see `Dropout.call`."""
        return self.postprocess(x, y, training_seed(self, seed, training))

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "norm": keras.saving.serialize_keras_object(self.norm),
            "dropout": self.dropout.rate,
            "norm_first": self.norm_first,
        }


@serializable
class LayerNorm(Layer):
    """Layer normalization (Ba et al., 2016) over the last axis, in float32 (3.1).

    Unlike in `keras.layers.LayerNormalization`, `dtype` is float32 also under another
    global policy, and x is centred before it is scaled. Keras computes
    x * inv - mean * inv, which cancels where the mean is large.
    """

    def __init__(self, d_model: int, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(autocast=False, **{"dtype": "float32"} | kwargs)
        self.d_model = d_model
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        """Creates gamma and beta, [D] each."""
        self.gamma = self._vector("gamma", initializer="ones")
        self.beta = self._vector("beta", initializer="zeros")

    def _vector(self, name: str, initializer: str) -> keras.Variable:
        return self.add_weight(
            name=name,
            shape=(self.d_model,),
            initializer=initializer,
            autocast=False,  # It is used in float32, not in the compute dtype.
        )

    def call(self, x: Tensor) -> Tensor:
        """Normalizes x [..., D]; the output has the compute dtype."""
        x = at_least_float32(x)
        gamma = ops.cast(self.gamma, x.dtype)
        beta = ops.cast(self.beta, x.dtype)
        y = normalize(x, gamma, beta, self.epsilon)
        return ops.cast(y, self.compute_dtype)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        arguments = {"d_model": self.d_model, "epsilon": self.epsilon}
        return super().get_config() | arguments
