"""Small layers and the arrays to try them with."""

import keras
import numpy as np

D = 12
HEADS = 3
D_K = 5
D_V = 2  # d_k is not d_v, and neither is D / H


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns random float32 numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def built(layer: keras.layers.Layer, width: int | None = None) -> keras.layers.Layer:
    """Builds a layer for inputs of a width."""
    layer.build((None, None, width))
    return layer


def attention_layer(cls: type, **options) -> keras.layers.Layer:
    """Builds an attention layer of the sizes above.

    Give a `name` where masks of dropout are tested: they depend on it, and Keras
    numbers layers in the order of the tests.
    """
    return built(cls(D, HEADS, D_K, D_V, **options), D)
