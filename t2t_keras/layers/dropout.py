"""Dropout whose mask is a function of an explicit seed and of the layer's place."""

import zlib
from typing import Any

import keras
from keras import ops


class _Key(keras.random.SeedGenerator):
    """A seed given from outside, in the form that `keras.random` takes."""

    def __init__(self, key: Any) -> None:
        self._key = key

    def next(self, ordered: bool = True) -> Any:
        """Returns the key, which the caller made different for every use."""
        del ordered
        return self._key


class Dropout(keras.layers.Layer):
    """Sets each element to zero with probability `rate` and scales up the others.

    Keras's own dropout draws from a state variable, which under `tf.distribute` gives
    every replica the same mask and cannot be replayed. Here the mask depends on the
    seed that the caller passes, folded with this layer's path in the model, and on
    nothing else.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    def build(self, input_shape: Any = None) -> None:
        """Fixes the layer's own part of the seed: a hash of its path."""
        self._fold = zlib.crc32(self.path.encode()) & 0x7FFFFFFF

    def call(self, x: Any, seed: Any = None) -> Any:
        """Drops out.

        Args:
            x: a tensor of any shape.
            seed: int32 [2] (uint32 on JAX), different for every step and replica; None
                at inference, when nothing is dropped.
        """
        if seed is None or not self.rate:
            return x
        seed = ops.convert_to_tensor(seed)
        key = _Key(seed + ops.cast([0, self._fold], seed.dtype))
        noise = keras.random.uniform(ops.shape(x), dtype="float32", seed=key)
        keep = ops.cast(ops.greater_equal(noise, self.rate), x.dtype)
        return x * (keep / (1.0 - self.rate))
