"""Complexity of self-attention, recurrent and convolutional layers (4, Table 1)."""

import math
from typing import NamedTuple


class Complexity(NamedTuple):
    """One row of Table 1, with O(...) as a number without constant factors.

    Attributes:
        operations: complexity per layer, for a whole sentence.
        sequential: sequential operations.
        path: maximum path length between two positions, in layers or steps.
    """

    operations: int
    sequential: int
    path: int


def layer_complexities(
    length: int, d_model: int, kernel: int, window: int
) -> dict[str, Complexity]:
    """Returns the rows of Table 1 by the kind of layer.

    Args:
        length: sequence length n.
        d_model: model width d.
        kernel: kernel width k of convolutions; at least 2.
        window: neighbourhood r of restricted self-attention.
    """
    n, d, k, r = length, d_model, kernel, min(window, length)
    dilated = _layers_to_span(n, k)
    return {
        "self_attention": Complexity(n * n * d, 1, 1),
        "recurrent": Complexity(n * d * d, n, n),
        "convolutional": Complexity(k * n * d * d, 1, dilated),
        "separable_convolutional": Complexity(k * n * d + n * d * d, 1, dilated),
        "restricted_self_attention": Complexity(r * n * d, 1, math.ceil(n / r)),
    }


def _layers_to_span(length: int, kernel: int) -> int:
    """Returns log_k(n), rounded up: the number of dilated convolution layers."""
    layers, span = 1, kernel
    while span < length:
        layers, span = layers + 1, span * kernel
    return layers
