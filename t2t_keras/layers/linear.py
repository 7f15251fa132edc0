"""The linear map of the last axis, and how its kernel begins."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops


class Linear(keras.layers.Dense):
    """`keras.layers.Dense` over one long row of positions.

    Dense multiplies [B, T, D] by its kernel as B products, and the gradient of the
    kernel is then summed over B partial ones. Flattened it is one product each way.
    """

    def call(self, x: Any) -> Any:
        """Maps [..., in] to [..., out]."""
        shape = ops.shape(x)
        rows = super().call(ops.reshape(x, (-1, shape[-1])))
        return ops.reshape(rows, (*shape[:-1], self.units))


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
