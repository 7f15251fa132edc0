"""Layer normalization (3.1)."""

from typing import Any

from keras import ops

from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.layers.base import Layer, serializable
from t2t_keras.model.layers.column_sums import scale_and_shift


@serializable
class LayerNorm(Layer):
    """Layer normalization (Ba et al., 2016) over the last axis, in float32 (3.1).

    Unlike `keras.layers.LayerNormalization`, its output is float32 also under a global
    mixed policy, and x is centred before it is scaled. Keras computes
    x * inv - mean * inv, which cancels where the mean is large.
    """

    def __init__(self, d_model: int, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32"} | kwargs)
        self.d_model = d_model
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        """Creates gamma and beta, [D] each."""
        shape = (self.d_model,)
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")

    def call(self, x: Tensor) -> Tensor:
        """Normalizes x [..., D]."""
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)  # [..., 1]
        unit = centred * ops.rsqrt(variance + self.epsilon)  # [..., D]
        return scale_and_shift(unit, self.gamma, self.beta)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        arguments = {"d_model": self.d_model, "epsilon": self.epsilon}
        return super().get_config() | arguments
