"""Complexity of self-attention, recurrent and convolutional layers (4, Table 1)."""

import math
from typing import NamedTuple


class Complexity(NamedTuple):
    """One row of Table 1: the terms inside O(...), as numbers.

    Attributes:
        operations: operations of one layer for a whole sentence.
        sequential: operations that cannot run in parallel.
        path: maximum path length between two positions, in layers or steps.
    """

    operations: int
    sequential: int
    path: int


def layer_complexities(
    length: int, d_model: int, kernel: int, window: int
) -> dict[str, Complexity]:
    """Returns the rows of Table 1, by layer type.

    Args:
        length: sequence length n.
        d_model: model width d.
        kernel: kernel width k of convolutions; at least 2.
        window: neighborhood r of restricted self-attention.
    """
    n = length
    d = d_model
    k = kernel
    r = min(window, length)
    dilated = _layers_to_span(n, k)
    return {
        "self_attention": Complexity(n * n * d, 1, 1),
        "recurrent": Complexity(n * d * d, n, n),
        "convolutional": Complexity(k * n * d * d, 1, dilated),
        "separable_convolutional": Complexity(k * n * d + n * d * d, 1, dilated),
        "restricted_self_attention": Complexity(r * n * d, 1, math.ceil(n / r)),
    }


def _layers_to_span(length: int, kernel: int) -> int:
    """Returns log_k(n), rounded up: dilated convolutions that connect all positions."""
    layers = 1
    span = kernel
    while span < length:
        layers += 1
        span *= kernel
    return layers
