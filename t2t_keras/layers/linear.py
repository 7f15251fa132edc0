"""The linear map of the last axis, and how its kernel begins."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.layers.matrix import HasMatrix


class Linear(HasMatrix, keras.layers.Dense):
    """`keras.layers.Dense` over one long row of positions.

    Dense multiplies [B, T, D] by its kernel as B products, and the gradient of the
    kernel is then summed over B partial ones. Flattened it is one product each way.
    """

    def matrix(self) -> Any:
        """Returns the kernel [in, out] in the compute dtype."""
        return self.held_or_cast(self.kernel)

    def call(self, x: Any) -> Any:
        """Maps [..., in] to [..., out]."""
        shape = ops.shape(x)
        rows = ops.matmul(ops.reshape(x, (-1, shape[-1])), self.matrix())
        if self.use_bias:
            rows = _add_bias(rows, ops.reshape(self.bias, (-1,)))
        return ops.reshape(rows, (*shape[:-1], self.units))


@ops.custom_gradient
def _add_bias(x: Any, bias: Any) -> tuple[Any, Any]:
    """Returns x [N, F] + bias [F] and its gradient function.

    The gradient of the bias, a sum of rows, is a product with a row of ones: reading
    the array is all it costs, and in bfloat16 it adds up in float32.
    """

    def grad(upstream: Any) -> tuple[Any, Any]:
        ones = ops.ones((1, ops.shape(upstream)[0]), upstream.dtype)
        return upstream, ops.matmul(ones, upstream)[0]

    return ops.add(x, bias), grad


class BlockGlorot(keras.initializers.Initializer):
    """Glorot uniform for several kernels stored side by side.

    The limit of each block follows from its own width, as if it stood alone.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = tuple(widths)

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Returns [in, sum(widths)]."""
        return ops.concatenate(
            [
                keras.initializers.GlorotUniform()((shape[0], width), dtype=dtype)
                for width in self.widths
            ],
            axis=1,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"widths": self.widths}
