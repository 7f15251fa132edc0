"""Weights of exports in 8 or 16 bits."""

import keras
import numpy as np
import tensorflow as tf


class StoredWeight(tf.Module):
    """A weight in 8 or 16 bits: rounded when written, restored in the graph.

    Only matrices are rounded, that is almost all weights; the arithmetic stays that of
    the model's compute dtype. In 8 bits, every channel (the output of a kernel's
    column, or the token of an embedding's row) has a scale, so that its largest weight
    is 127.

    Args:
        weight: the model's weight.
        quantization: the dtype to which matrices are rounded.
    """

    def __init__(self, weight: keras.Variable, quantization: str) -> None:
        super().__init__(name="weight")
        array = np.asarray(keras.ops.convert_to_numpy(weight), np.float32)
        self._scale: tf.Variable | None = None
        if array.ndim < 2:
            stored = tf.constant(array)
        elif quantization == "int8":
            channels = 1 if weight.name == "table" else 0  # rows, or columns
            max_values = np.abs(array).max(axis=channels, keepdims=True)
            max_values = np.where(max_values > 0, max_values, 1.0)
            scale = max_values.astype(np.float32) / 127
            stored = tf.constant(np.rint(array / scale), tf.int8)
            self._scale = tf.Variable(scale, trainable=False)
        else:
            stored = tf.cast(tf.constant(array), quantization)
        self._stored = tf.Variable(stored, trainable=False)

    def restored(self) -> tf.Tensor:
        """Returns the weight in float32, rounded."""
        weight = tf.cast(self._stored, tf.float32)
        return weight if self._scale is None else weight * self._scale
