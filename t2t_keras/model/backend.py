"""The Keras backend: tensors, base classes of layers, formulas that depend on it.

An `Execution` describes what executes the traced operations. TensorFlow's kernels
execute them one by one, each with a pass over its arrays; XLA fuses them. A formula
that is fast for one may be slow for the other, so this module has both.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
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


@dataclasses.dataclass(frozen=True)
class Execution:
    """What executes operations.

    Attributes:
        is_fused: whether XLA fuses them.
        has_column_products: whether the sum over the rows of an array is faster as a
            matrix product, see `column_sums`.
        keep: returns equal tensors that XLA stores. It would compute others again
            wherever they are used, from whatever is stored.
    """

    is_fused: bool = False
    has_column_products: bool = False
    keep: Callable[[Sequence[Tensor]], Sequence[Tensor]] = tuple


_KERNELS = Execution()
_execution = contextvars.ContextVar("execution", default=_KERNELS)


@contextlib.contextmanager
def executed_by(execution: Execution) -> Iterator[None]:
    """Sets what executes the operations that the `with` block traces."""
    token = _execution.set(execution)
    try:
        yield
    finally:
        _execution.reset(token)


def current_execution() -> Execution:
    """Returns what executes the operations that are being traced."""
    return _execution.get()


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


def to_rows(x: Tensor, *axes: int) -> Tensor:
    """Returns [B, T, ...] as rows [N, *axes], N = B T; without axes [N, ...]."""
    if current_execution().is_fused:
        x = ops.swapaxes(x, 0, 1)
    return ops.reshape(x, (-1, *(axes or x.shape[2:])))


def from_rows(
    rows: Tensor, batch: int | Tensor, length: int | Tensor, *axes: int
) -> Tensor:
    """Returns rows [N, ...] as [B, T, *axes]; without axes as [B, T, ...]."""
    axes = axes or rows.shape[1:]
    if current_execution().is_fused:
        return ops.swapaxes(ops.reshape(rows, (length, batch, *axes)), 0, 1)
    return ops.reshape(rows, (batch, length, *axes))


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """Returns x + bias, for x [..., D] and a bias [D]."""
    if not current_execution().has_column_products:
        return x + bias

    @ops.custom_gradient
    def add(x: Tensor, bias: Tensor) -> tuple[Tensor, Callable[..., object]]:
        def grad(upstream: Tensor) -> tuple[Tensor, Tensor]:
            return upstream, column_sums(upstream)

        return x + bias, grad

    return add(x, ops.convert_to_tensor(bias, x.dtype))


def scale_and_shift(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Returns x gamma + beta, for x [..., D] and vectors [D]."""
    if not current_execution().has_column_products:
        return x * gamma + beta

    @ops.custom_gradient
    def apply(
        x: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Callable[..., object]]:
        def grad(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            d_gamma = column_sums(upstream * x)
            return upstream * gamma, d_gamma, column_sums(upstream)

        return x * gamma + beta, grad

    return apply(x, ops.convert_to_tensor(gamma), ops.convert_to_tensor(beta))


def column_sums(x: Tensor) -> Tensor:
    """Returns the sums [D] over all axes of x [..., D] but the last, as a product.

    It is several times faster than `ops.sum` on a CPU, whose order of summation also
    depends on the number of threads.
    """
    rows = ops.reshape(x, (-1, x.shape[-1]))  # [N, D]
    ones = ops.ones((1, ops.shape(rows)[0]), x.dtype)
    return ops.reshape(ops.matmul(ones, rows), (-1,))
