"""Dropout whose masks the caller can draw again (5.4)."""

import math
import random
import zlib
from typing import Any

import keras
from keras import ops

from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.layers.base import Layer, serializable
from t2t_keras.model.layers.dropout_keys import (
    DropoutKeys,
    DropoutSeed,
    ElementKeys,
    feature_keys,
    random_words,
    row_keys,
    weight_keys,
    word,
)


@serializable
class Dropout(Layer):
    """Dropout with a seed that the caller may pass (5.4).

    `keras.layers.Dropout` takes its seed from a state variable: under `tf.distribute`
    all replicas draw the same mask, and no mask can be drawn again. It also rounds the
    scale in 16 bits. Here the mask depends only on the caller's seed, on the layer's
    path in the model and on the names of the elements, see `dropout_keys`; it is the
    same with every backend, device and compiler. Without a seed, the layer draws one
    from a state variable.
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
        self, x: Tensor, seed: DropoutSeed | None = None, training: bool = False
    ) -> Tensor:
        """Sets elements to zero with probability `rate` and scales up the others.

        Args:
            x: [B, T, D], or attention weights [B, H, T, S]; of any shape if the seed is
                not `DropoutKeys`.
            seed: integers [2], different for every step; or the keys that the model
                has made of them.
            training: whether to drop elements without a seed as well.
        """
        if not self.rate or (seed is None and not training):
            return x
        if seed is None:
            assert self.seed_generator is not None
            seed = self.seed_generator.next()
        words = random_words(_element_keys(seed, x), self._fold)
        # A rate near 1 must not be rounded to 2^32, which no word reaches.
        threshold = min(round(self.rate * 2**32), 2**32 - 1)
        keep = ops.cast(words >= word(threshold), "float32")
        # In bfloat16, a factor of 1.1111 would be rounded to 1.1094.
        scaled = ops.cast(x, "float32") * (keep / (1.0 - self.rate))
        return ops.cast(scaled, x.dtype)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"rate": self.rate}


def _element_keys(seed: DropoutSeed, x: Tensor) -> ElementKeys:
    """Returns the keys of the elements of x, see `Dropout.call`."""
    if isinstance(seed, ElementKeys):
        return seed
    is_of_weights = len(x.shape) == 4
    if isinstance(seed, DropoutKeys):
        if is_of_weights:
            return weight_keys(seed, _size(x, 1))
        return feature_keys(seed, _size(x, -1))
    shape = ops.shape(x)
    if is_of_weights:
        batch, heads, length, source_length = shape
        keys = row_keys(seed, batch, length, source_length)
        return weight_keys(keys._replace(columns=keys.source_columns), heads)
    # Whatever axes are between the first and the last hold positions.
    batch, *inner = shape[:-1] or (1,)
    keys = row_keys(seed, batch, math.prod(inner))
    tokens = ops.reshape(keys.tokens, shape[:-1])
    return feature_keys(keys._replace(tokens=tokens), shape[-1])


def _size(x: Tensor, axis: int) -> int | Tensor:
    """Returns the size of an axis, a number if the graph knows it.

    `ops.shape` would also add the sizes of all other axes to the graph.
    """
    size = x.shape[axis]
    return ops.shape(x)[axis] if size is None else size
