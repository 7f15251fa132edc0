"""Dropout whose masks the caller can draw again (5.4)."""

import math
import random
import zlib
from typing import Any

import keras
from keras import ops

from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.layers.base import Layer, serializable


@serializable
class Dropout(Layer):
    """Dropout with a seed that the caller may pass (5.4).

    `keras.layers.Dropout` takes its seed from a state variable: under `tf.distribute`
    all replicas draw the same mask, and no mask can be drawn again. It also rounds the
    scale in 16 bits. Here the mask depends only on the caller's seed and on the layer's
    path in the model; without a seed it works as in Keras.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    def build(self, input_shape: Shape) -> None:
        """Computes this layer's part of the seed, a hash of its path."""
        self._fold = zlib.crc32(self.path.encode()) & 0x7FFFFFFF
        self.seed_generator = None
        if self.rate:
            # Keras draws the initial weights from the same state, which is restored.
            state = random.getstate()
            start = random.randrange(2**31)
            random.setstate(state)
            start = (start + self._fold) % 2**31
            self.seed_generator = keras.random.SeedGenerator(start)

    def call(
        self, x: Tensor, seed: Tensor | None = None, training: bool = False
    ) -> Tensor:
        """Sets elements to zero with probability `rate` and scales up the others.

        Args:
            x: a tensor of any shape.
            seed: [2], different for every step and replica. An int32 seed is for
                Keras's random numbers, a uint32 seed for `random_bits` (with XLA).
            training: whether to drop elements without a seed as well.
        """
        if not self.rate or (seed is None and not training):
            return x
        keep = ops.cast(self._is_kept(x, seed), "float32")
        # In bfloat16, a factor of 1.1111 would be rounded to 1.1094.
        scaled = ops.cast(x, "float32") * (keep / (1.0 - self.rate))
        return ops.cast(scaled, x.dtype)

    def _is_kept(self, x: Tensor, seed: Tensor | None) -> Tensor:
        """Draws a bool mask of the shape of x."""
        generator = self.seed_generator
        if seed is not None:
            seed = ops.convert_to_tensor(seed)
            seed += ops.cast([0, self._fold], seed.dtype)
            generator = _FixedSeed(seed)
        if seed is not None and keras.backend.standardize_dtype(seed.dtype) == "uint32":
            *axes, columns = ops.shape(x)
            bits = random_bits(seed, math.prod(axes), columns)  # [N, D]
            bits = ops.reshape(bits, ops.shape(x))
            return ops.greater_equal(bits, _uint32(round(self.rate * 2**32)))
        noise = keras.random.uniform(ops.shape(x), dtype="float32", seed=generator)
        return ops.greater_equal(noise, self.rate)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"rate": self.rate}


class _FixedSeed(keras.random.SeedGenerator):
    """A fixed seed, wrapped as the seed generator that `keras.random` expects."""

    def __init__(self, seed: Tensor) -> None:
        self._seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the seed; the caller passes another one for each use."""
        del ordered
        return self._seed


def random_bits(seed: Tensor, rows: int | Tensor, columns: int | Tensor) -> Tensor:
    """Returns 32 random bits for each element of a matrix, uint32 [rows, columns].

    They are a hash of row, column and seed in integer arithmetic, which is the same
    with and without XLA. (XLA's own random numbers differ from those of TensorFlow's
    kernels.) It is fast only if it is compiled: without XLA, every operation here is a
    pass over the matrix. The seed is uint32 [2].
    """
    # Any constant would do; without one, the matrix of seed 0 would be symmetric.
    row_key = _mix_bits(seed[0] + _uint32(0x9E3779B9))
    column_key = _mix_bits(seed[1] + row_key + _uint32(0x9E3779B9))
    by_row = _mix_bits(ops.cast(ops.arange(rows), "uint32") + row_key)  # [rows]
    by_column = _mix_bits(ops.cast(ops.arange(columns), "uint32") + column_key)
    return _mix_bits(by_row[:, None] + by_column[None, :])  # [rows, columns]


def _mix_bits(x: Tensor) -> Tensor:
    """Mixes all bits of x: the hash function lowbias32 of Chris Wellons."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(shift)))
        x = x * _uint32(factor)
    return ops.bitwise_xor(x, ops.right_shift(x, _uint32(16)))


def _uint32(value: int) -> Tensor:
    return ops.convert_to_tensor(value, dtype="uint32")
