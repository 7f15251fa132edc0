"""Dropout whose masks the caller can draw again (5.4)."""

import math
import random
import zlib
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from t2t_keras.model.backend import (
    Layer,
    Shape,
    Tensor,
    arange,
    at_least_float32,
    inner_layers,
    serializable,
)

# PyTorch cannot multiply uint32 numbers, so it computes in int64.
_WORD = "int64" if keras.backend.backend() == "torch" else "uint32"

# Any constant would do; without one, the key of 0 would be 0.
_OFFSET = 0x9E3779B9


class DropoutKeys(NamedTuple):
    """The random keys of the tokens of one side.

    Attributes:
        tokens: [B, T], of each token.
        columns: [1, S] or [B, S], odd, of the positions that attention attends to.
        source_columns: the same for cross-attention.
    """

    tokens: Tensor
    columns: Tensor
    source_columns: Tensor


class ElementKeys(NamedTuple):
    """The factors of a mask: rows [...], and columns that broadcast to [..., D]."""

    rows: Tensor
    columns: Tensor


# What a layer with dropout takes: a seed [2], or the keys that are made of it.
DropoutSeed: TypeAlias = Tensor | DropoutKeys | ElementKeys


def token_keys(
    seed: Tensor,
    segments: Tensor,
    positions: Tensor,
    source_positions: Tensor | None = None,
) -> DropoutKeys:
    """Returns the keys of tokens, given their segments and positions.

    Args:
        seed: integers [2], different for every step.
        segments: integers [B, T] or [B, 1].
        positions: integers [B, T] or [1, T].
        source_positions: the same of the source, if the tokens are the target's.
    """
    # A slice in the seed's dtype: a GPU cannot unstack words.
    run_word = word(seed[0])
    step_word = word(seed[1])
    key = mix_bits(_low_bits(ops.add(index_keys(run_word) + step_word, word(_OFFSET))))
    by_segment = mix_bits(_low_bits(ops.add(key, word(segments))))
    columns = _odd(index_keys(positions))
    return DropoutKeys(
        tokens=mix_bits(_low_bits(ops.add(by_segment, word(positions)))),  # [B, T]
        columns=columns,
        source_columns=columns
        if source_positions is None
        else _odd(index_keys(source_positions)),
    )


def row_keys(
    seed: Tensor,
    batch_size: int | Tensor,
    length: int | Tensor,
    source_length: int | Tensor | None = None,
    first_row: int | Tensor = 0,
) -> DropoutKeys:
    """Returns the keys of tokens in rows with one pair each.

    The segment is 1 + the number of the row in the step's whole batch.

    Args:
        seed: see `token_keys`.
        batch_size: B
        length: T
        source_length: S, if the tokens are the target's.
        first_row: the number of the first of these rows in the whole batch.
    """
    rows = ops.add(word(arange(batch_size)), word(first_row))
    rows = ops.add(rows, word(1))
    segments = ops.expand_dims(rows, 1)  # [B, 1]
    positions = ops.expand_dims(arange(length), 0)  # [1, T]
    source_positions = None
    if source_length is not None:
        source_positions = ops.expand_dims(arange(source_length), 0)  # [1, S]
    return token_keys(seed, segments, positions, source_positions)


def fold_in(
    seed: Tensor | DropoutKeys | None, index: int
) -> Tensor | DropoutKeys | None:
    """Returns a seed, or keys, that gives other dropout masks for each index.

    Without it, a layer that is applied twice in a step has equal masks.
    """
    if seed is None:
        return None
    if isinstance(seed, DropoutKeys):
        tokens = ops.bitwise_xor(seed.tokens, index_keys(index))
        return seed._replace(tokens=tokens)
    return seed + ops.convert_to_tensor([index, 0], dtype=seed.dtype)


def source_keys(seed: DropoutSeed | None) -> DropoutSeed | None:
    """Returns the keys for attention to the source; a seed serves both sides."""
    if not isinstance(seed, DropoutKeys):
        return seed
    return seed._replace(columns=seed.source_columns)


def weight_keys(keys: DropoutKeys, num_heads: int | Tensor) -> ElementKeys:
    """Returns the keys of attention weights [B, H, T, S]."""
    heads = index_keys(_range(num_heads))
    rows = ops.bitwise_xor(keys.tokens[:, None, :], heads[:, None])  # [B, H, T]
    return ElementKeys(rows, keys.columns[:, None, None, :])


def feature_keys(keys: DropoutKeys, size: int | Tensor) -> ElementKeys:
    """Returns the keys of features [B, T, D]."""
    columns = _odd(index_keys(_range(size)))  # [D]
    return ElementKeys(keys.tokens, ops.convert_to_tensor(columns))


def random_words(keys: ElementKeys, layer_key: int) -> Tensor:
    """Returns a random number below 2^32, even ones excepted, for each element.

    Args:
        keys: of the elements of x [..., D].
        layer_key: another one for every layer.
    """
    rows = _product(ops.bitwise_xor(keys.rows, word(layer_key)), 0x7FEB352D)
    rows = _odd(ops.bitwise_xor(rows, ops.right_shift(rows, word(16))))
    return _low_bits(ops.expand_dims(rows, -1) * keys.columns)  # [..., D]


def index_keys(indices: Tensor) -> Tensor:
    """Returns random keys of integers."""
    indices = word(indices)
    return mix_bits(_low_bits(_library(indices).add(indices, word(_OFFSET))))


def mix_bits(x: Tensor) -> Tensor:
    """Mixes all bits of x: the hash function lowbias32 of Chris Wellons."""
    library = _library(x)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = library.bitwise_xor(x, library.right_shift(x, word(shift)))
        x = _product(x, factor)
    return library.bitwise_xor(x, library.right_shift(x, word(16)))


def word(values: int | Tensor) -> Tensor:
    """Returns integers modulo 2^32, in the dtype of the arithmetic here.

    For a number or a NumPy array, the result is a NumPy array.
    """
    if isinstance(values, (int, np.ndarray)):
        return _low_bits(np.asarray(values).astype(_WORD))
    return _low_bits(ops.convert_to_tensor(values, dtype=_WORD))


def _library(x: Tensor) -> ModuleType:
    """Returns the library that computes with x."""
    return np if isinstance(x, np.ndarray) else ops


def _range(size: int | Tensor) -> Tensor:
    """Returns 0 ... size - 1, a NumPy array if the size is known."""
    return np.arange(size) if isinstance(size, int) else arange(size)


def _product(x: Tensor, factor: int) -> Tensor:
    """Returns x times a number, modulo 2^32."""
    return _low_bits(_library(x).multiply(x, word(factor)))


def _odd(x: Tensor) -> Tensor:
    return _library(x).bitwise_or(x, word(1))


def _low_bits(x: Tensor) -> Tensor:
    """Returns the results of integer arithmetic modulo 2^32."""
    if _WORD == "uint32":
        return x
    return _library(x).bitwise_and(x, 2**32 - 1)


@serializable
class Dropout(Layer):
    """Dropout with a seed that the caller may pass (5.4).

    `keras.layers.Dropout` takes its seed from a state variable: under `tf.distribute`
    all replicas draw the same mask, and no mask can be drawn again. It also rounds the
    scale in 16 bits. Here the mask depends only on the caller's seed, on the layer's
    path in the model and on the names of the elements, see `ElementKeys`; it is the
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
        seed = training_seed(self, seed, training)
        if not self.rate or seed is None:
            return x
        words = random_words(_element_keys(seed, x), self._fold)
        # A rate near 1 must not be rounded to 2^32, which no word reaches.
        threshold = min(round(self.rate * 2**32), 2**32 - 1)
        # In bfloat16, a factor of 1.1111 would be rounded to 1.1094.
        wide = at_least_float32(x)
        keep = ops.cast(words >= word(threshold), wide.dtype)
        return ops.cast(wide * (keep / (1.0 - self.rate)), x.dtype)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"rate": self.rate}


def training_seed(
    layer: keras.layers.Layer, seed: DropoutSeed | None, training: bool
) -> DropoutSeed | None:
    """Returns the caller's seed or, in training, one from the first inner dropout.

    A layer that contains others passes the seed to them. It cannot rely on Keras to
    pass `training`: `stateless_call`, with which `fit` trains on JAX, does not.
    """
    if seed is not None or not training:
        return seed
    for inner in [layer, *inner_layers(layer)]:
        if isinstance(inner, Dropout) and inner.seed_generator is not None:
            return inner.seed_generator.next()
    return None


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
