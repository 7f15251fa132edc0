"""The position-wise feed-forward network (3.3)."""

from collections.abc import Callable
from typing import Any, Literal

from keras import ops

from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.execution import current_execution
from t2t_keras.model.layers.base import Layer, serializable
from t2t_keras.model.layers.dropout import Dropout
from t2t_keras.model.layers.dropout_keys import DropoutSeed
from t2t_keras.model.layers.linear import Kernels, Linear


@serializable
class FeedForward(Layer):
    """Network max(0, x W1 + b1) W2 + b2 at every position (3.3, equation 2).

    With the activation "swish" it is swish(x W1 + b1) W2 + b2, swish(x) = x sigmoid(x).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        dropout: float = 0.0,
        activation: Literal["relu", "swish"] = "relu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.d_ff = d_ff
        self.activation = activation
        self.inner = Linear(d_ff, name="inner", dtype=self.dtype_policy)
        self.outer = Linear(d_model, name="outer", dtype=self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        self.inner.build(input_shape)
        self.outer.build((None, self.d_ff))
        self.dropout.build(input_shape)

    def call(
        self, x: Tensor, seed: DropoutSeed | None = None, kernels: Kernels | None = None
    ) -> Tensor:
        """Maps [B, T, D] to [B, T, D]; see `Dropout` and `Linear.call`."""
        hidden = self.inner(x, kernels=kernels)  # [B, T, F]
        hidden = _relu(hidden) if self.activation == "relu" else ops.silu(hidden)
        return self.outer(self.dropout(hidden, seed=seed), kernels=kernels)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "dropout": self.dropout.rate,
            "activation": self.activation,
        }


def _relu(x: Tensor) -> Tensor:
    """Returns max(x, 0).

    XLA rewrites the gradient's condition y > 0 as x > 0, and so stores x besides y. It
    leaves y != 0 as it is. Then cuBLASLt can also do the maximum within the product.
    """
    if not current_execution().is_fused:
        return ops.relu(x)

    @ops.custom_gradient
    def relu(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        y = ops.relu(x)

        def grad(upstream: Tensor) -> Tensor:
            return ops.where(ops.not_equal(y, 0), upstream, 0)

        return y, grad

    return relu(x)
