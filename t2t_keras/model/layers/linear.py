"""Matrix products: the linear layer, and its initializer."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import keras
from keras import ops

from t2t_keras.model.backend import (
    Layer,
    Shape,
    Tensor,
    serializable,
)
from t2t_keras.model.execution import add_bias, from_rows, relu, to_rows
from t2t_keras.model.layers.dropout import Dropout, DropoutSeed, training_seed

# In the compute dtype, kernels by the paths of their layers, and biases by their own.
# They are part of the decoding cache: in bfloat16, casting them takes a seventh of a
# decoding step.
Kernels: TypeAlias = Mapping[str, Tensor]


@serializable
class BlockGlorot(keras.initializers.Initializer):
    """Glorot uniform initializer for a kernel that holds several kernels side by side.

    Each kernel is initialized with the limit for its own width.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = tuple(widths)

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> Tensor:
        """Returns [in, sum(widths)]."""
        glorot = keras.initializers.GlorotUniform
        blocks = [glorot()((shape[0], width), dtype=dtype) for width in self.widths]
        return ops.concatenate(blocks, axis=1)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return {"widths": self.widths}


@serializable
class Linear(keras.layers.Dense):
    """`keras.layers.Dense` for kernels that were cast before.

    Dense casts its kernel at each call. It also leaves it to the backend how
    [B, T, D] is multiplied; this layer multiplies [B * T, D] on all of them, so that
    the product and both its gradients are one matrix product each.
    """

    def cast_kernel(self) -> Tensor:
        """Returns the kernel [in, out] in the compute dtype."""
        return ops.cast(self.kernel, self.compute_dtype)

    def cast_weights(self) -> Kernels:
        """Returns kernel [in, out] and bias [out] in the compute dtype."""
        weights = {self.path: self.cast_kernel()}
        if self.use_bias:
            weights[self.bias.path] = ops.cast(self.bias, self.compute_dtype)
        return weights

    def call(self, x: Tensor, kernels: Kernels | None = None) -> Tensor:
        """Maps [..., in] to [..., out]; without `kernels` it casts its own weights."""
        if len(x.shape) != 2:
            *axes, width = ops.shape(x)
            if len(axes) == 2:
                return from_rows(self.call(to_rows(x), kernels), *axes)
            rows = self.call(ops.reshape(x, (-1, width)), kernels)  # [N, out]
            return ops.reshape(rows, (*axes, self.units))
        kernel = self.cast_kernel() if kernels is None else kernels[self.path]
        bias = None
        if self.use_bias:
            bias = self.bias if kernels is None else kernels[self.bias.path]
        return self._product(x, kernel, bias)

    def blocks(self, rows: Tensor, widths: Sequence[int]) -> list[Tensor]:
        """Returns the columns of the output [N, out] in blocks, [N, width] each.

        Each is a product: for XLA, which would copy the columns of one product.
        """
        if len(widths) == 1:
            return [self(rows)]
        rows = ops.cast(rows, self.compute_dtype)
        bounds = list(itertools.accumulate(widths))[:-1]
        kernels = ops.split(self.cast_kernel(), bounds, axis=1)  # [in, width] each
        biases: list[Tensor | None] = [None] * len(widths)
        if self.use_bias:
            biases = ops.split(ops.cast(self.bias, self.compute_dtype), bounds)
        return [
            self._product(rows, kernel, bias)
            for kernel, bias in zip(kernels, biases, strict=True)
        ]

    def _product(self, rows: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Returns activation(rows kernel + bias), [N, width]."""
        y = ops.matmul(rows, kernel)
        if bias is not None:
            y = add_bias(y, bias)
        return self.activation(y)


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
        self.inner = self._linear(d_ff, name="inner")
        self.outer = self._linear(d_model, name="outer")
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def _linear(self, width: int, name: str) -> Linear:
        return Linear(
            width, name=name, trainable=self.trainable, dtype=self.dtype_policy
        )

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        self.inner.build(input_shape)
        self.outer.build((None, self.d_ff))
        self.dropout.build(input_shape)

    def call(
        self,
        x: Tensor,
        seed: DropoutSeed | None = None,
        kernels: Kernels | None = None,
        training: bool = False,
    ) -> Tensor:
        """Maps [B, T, D] to [B, T, D]; see `Dropout` and `Linear.call`."""
        seed = training_seed(self, seed, training)
        hidden = self.inner(x, kernels=kernels)  # [B, T, F]
        hidden = relu(hidden) if self.activation == "relu" else ops.silu(hidden)
        return self.outer(self.dropout(hidden, seed=seed), kernels=kernels)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns [..., D]."""
        return (*input_shape[:-1], self.d_model)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "dropout": self.dropout.rate,
            "activation": self.activation,
        }
