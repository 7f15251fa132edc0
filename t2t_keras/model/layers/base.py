"""Base classes of the layers: shapes, masks and configs as Keras expects them."""

from collections.abc import Sequence
from typing import Any, Self

import keras

from t2t_keras.model.backend import Shape, Tensor

# Models that contain these classes are loaded without `custom_objects`.
serializable = keras.saving.register_keras_serializable(package="t2t_keras")


class Layer(keras.layers.Layer):
    """A layer that maps [..., D] to [..., D]."""

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of the output."""
        return input_shape

    def compute_output_spec(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        """Returns symbolic outputs; `call` determines their number and dtypes."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_mask(
        self, inputs: Tensor, previous_mask: Tensor | None
    ) -> Tensor | None:
        """Returns the mask of the output, which is the mask of the first input."""
        return previous_mask


class Block(Layer):
    """A layer that consists of other layers, all with inputs of one shape."""

    def build(self, input_shape: Shape) -> None:
        """Builds the inner layers."""
        for layer in self._flatten_layers(include_self=False, recursive=False):
            # Keras has built them already when it loads a model.
            if not layer.built:
                layer.build(input_shape)

    @classmethod
    def from_config(cls, config: dict[str, object]) -> Self:
        """Returns the layer of a config, in which the inner layers are configs too."""
        return cls(**keras.saving.deserialize_keras_object(config))


class Stack(Block):
    """A stack of N layers.

    Args:
        layers: the layers.
        norm: the layer normalization that follows them with norm "pre", or None.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        layers: Sequence[keras.layers.Layer],
        norm: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.layers = list(layers)
        self.norm = norm

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "layers": keras.saving.serialize_keras_object(self.layers),
            "norm": keras.saving.serialize_keras_object(self.norm),
        }
