"""Per-layer complexity of self-attention and of what it replaced (4, Table 1)."""

import math
from typing import NamedTuple


class Complexity(NamedTuple):
    """One row of Table 1 with numbers in place of O(...), constant factors left out.

    Attributes:
        operations: of one layer for the whole sentence.
        sequential: how many of them must wait for one another.
        path: the longest way of a signal between two positions, in layers or steps.
    """

    operations: int
    sequential: int
    path: int


def layer_complexities(
    length: int, d_model: int, kernel: int, window: int
) -> dict[str, Complexity]:
    """Returns Table 1 for a sentence.

    Args:
        length: n.
        d_model: d.
        kernel: k, width of a convolution; at least 2.
        window: r, neighbours that restricted self-attention sees.
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
    """Returns log_k(n), rounded up: dilated convolutions that join all positions."""
    layers, span = 1, kernel
    while span < length:
        layers, span = layers + 1, span * kernel
    return layers
