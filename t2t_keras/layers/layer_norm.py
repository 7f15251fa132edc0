"""Layer normalisation (Ba et al., 2016; section 3.1 of the paper)."""

from typing import Any

import keras
from keras import ops

EPSILON = 1e-6  # of the authors' code; Keras's default is 1e-3


class LayerNorm(keras.layers.Layer):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta, over the last axis.

    In float32. The gradient is written down: derived op by op from the forward pass it
    goes over the array twice as often.
    """

    def __init__(self, d_model: int, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self.d_model = d_model

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights, [D] each."""
        self.gamma = self.add_weight(
            name="gamma", shape=(self.d_model,), initializer="ones"
        )
        self.beta = self.add_weight(
            name="beta", shape=(self.d_model,), initializer="zeros"
        )

    def call(self, x: Any) -> Any:
        """Normalises [..., D]."""
        shape = ops.shape(x)
        rows = ops.reshape(x, (-1, self.d_model))
        # Tensors: a custom gradient does not take variables.
        gamma, beta = (ops.reshape(w, (-1,)) for w in (self.gamma, self.beta))
        return ops.reshape(_layer_norm(rows, gamma, beta), shape)


@ops.custom_gradient
def _layer_norm(x: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
    """Returns the normalised rows of x [N, D] and their gradient function."""
    centred = x - ops.mean(x, axis=1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=1, keepdims=True)
    inverse = ops.rsqrt(variance + EPSILON)
    unit = centred * inverse

    def grad(upstream: Any) -> tuple[Any, Any, Any]:
        """What comes from above, less the parts that would shift or scale x."""
        # Sums over rows and columns are matrix products: several times faster on a CPU.
        along_unit = upstream * unit
        columns = ops.ones((1, ops.shape(x)[0]))
        mean = gamma[:, None] / x.shape[1]
        shift, scale = ops.matmul(upstream, mean), ops.matmul(along_unit, mean)
        return (
            (upstream * gamma - shift - unit * scale) * inverse,
            ops.matmul(columns, along_unit)[0],
            ops.matmul(columns, upstream)[0],
        )

    return unit * gamma + beta, grad
