"""Tensors of any Keras backend, and the base classes of layers."""

from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import keras
from keras import ops
from keras.src import backend as keras_backend

from t2t_keras.errors import UserError

# A tensor of any Keras backend; Keras has no common type for them.
Tensor: TypeAlias = Any

# The shape that a layer is built for; None stands for any size of an axis.
Shape: TypeAlias = tuple[int | None, ...]

# A nested structure of tensors, or of their shapes: what a loop carries along.
Nest: TypeAlias = Any


def arange(size: int | Tensor) -> Tensor:
    """Returns 0 ... `size` - 1, int32; `keras.ops.arange` depends on `floatx`."""
    return ops.arange(size, dtype="int32")


def at_least_float32(x: Tensor) -> Tensor:
    """Returns x in float32, or unchanged if it is float64."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def to_ids(x: Tensor) -> Tensor:
    """Returns x as integers, as `keras.layers.Embedding` does.

    Keras assumes float32 for inputs of which it knows only the shape.
    """
    is_id = keras.backend.standardize_dtype(x.dtype) in ("int32", "int64")
    return x if is_id else ops.cast(x, "int32")


def require_tensorflow() -> None:
    """Raises `UserError` unless Keras runs on TensorFlow.

    The model runs on any backend; decoding, training and serving need TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"t2t_keras needs TensorFlow here, and Keras runs on "
            f"{keras.backend.backend()}: set KERAS_BACKEND=tensorflow"
        )


def set_mask(x: Tensor, mask: Tensor) -> None:
    """Attaches a mask to a tensor, where Keras's losses and metrics look for it.

    Keras has no public function for this, and JAX's tensors take no attributes.
    """
    keras_backend.set_keras_mask(x, mask)


def inner_layers(
    layer: keras.layers.Layer, recursive: bool = True
) -> list[keras.layers.Layer]:
    """Returns the layers inside a layer, and those inside them if it is recursive.

    Keras has a public list for models only, and without the inner ones.
    """
    return layer._flatten_layers(include_self=False, recursive=recursive)


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
        for layer in inner_layers(self, recursive=False):
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
