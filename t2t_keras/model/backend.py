"""The tensor type of the Keras backend, and the check that it is TensorFlow."""

from typing import Any, TypeAlias

import keras

from t2t_keras.errors import UserError

# A tensor of any Keras backend; Keras has no common type for them.
Tensor: TypeAlias = Any

# The shape that a layer is built for; None stands for any size of an axis.
Shape: TypeAlias = tuple[int | None, ...]

# A nested structure of tensors, or of their shapes: what a loop carries along.
Nest: TypeAlias = Any


def require_tensorflow() -> None:
    """Raises `UserError` unless Keras runs on TensorFlow.

    The model runs on any backend; decoding, training and serving need TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"t2t_keras needs TensorFlow here, and Keras runs on "
            f"{keras.backend.backend()}: set KERAS_BACKEND=tensorflow"
        )
