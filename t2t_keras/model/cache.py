"""What the model keeps between decoding steps."""

from typing import NamedTuple, Self

import keras
from keras import ops

from t2t_keras.model.backend import Nest, Tensor
from t2t_keras.model.layers.columns import (
    UsedColumns,
    add_used,
    append_columns,
    count_used,
    reserve_columns,
    select_columns,
)
from t2t_keras.model.layers.linear import Kernels


class LayerCache(NamedTuple):
    """What a decoder layer attends to: tokens, and the source, one for all beams."""

    # A `TokenCache` of the class that the self-attention's `empty_cache` returns; None
    # where all positions are decoded at once.
    tokens: Nest
    cross_key: Tensor  # [B, H, S, d_k]
    cross_value: Tensor  # [B, H, S, d_v]


class DecodingCache(NamedTuple):
    """What the model keeps between decoding steps.

    The hypotheses of a sentence often share their first tokens. So the tokens of all of
    them form one list, with C columns, and `positions` says which of them each
    hypothesis consists of: when a hypothesis continues another, keys and values stay
    where they are.

    Attributes:
        positions: [B, K, C] float32, the position of the token in column c if it is in
            hypothesis k, otherwise -1. (A GPU compares integers on the host.)
        used: how many columns have tokens, if there are free ones for more.
        bias: [B, 1, 1, S], masks the source's padding.
        coverage: [B, K, S] float32, the cross-attention weights of the last layer, the
            mean of its heads, summed over the steps; [B, K, 0] unless tracked.
        kernels: what the layers multiply by.
        layers: the cache of each decoder layer.
        state: what a subclass of `Transformer` keeps besides; () in others.
    """

    positions: Tensor
    bias: Tensor
    coverage: Tensor
    kernels: Kernels
    layers: tuple[LayerCache, ...]
    state: Nest = ()
    used: UsedColumns = ()

    def append(self, positions: Tensor) -> Self:
        """Returns the cache with the positions [B, K, K] of the tokens of a step."""
        return self._replace(
            positions=append_columns(self.positions, positions, self.used),
            used=add_used(self.used, positions),
        )

    def reserve(self, steps: int | Tensor) -> Self:
        """Returns the cache, preallocated for a total number of steps."""
        columns = ops.shape(self.positions)[1] * steps
        layers = []
        for layer in self.layers:
            tokens = layer.tokens
            if hasattr(tokens, "reserve"):
                tokens = tokens.reserve(columns)
            layers.append(layer._replace(tokens=tokens))
        return self._replace(
            positions=reserve_columns(self.positions, columns, fill=-1.0),
            layers=tuple(layers),
            used=count_used(self.positions, self.used),
        )

    def reorder(self, parents: Tensor) -> Self:
        """Returns the cache after `Transformer.reorder_cache`; keeps `state`."""
        batch, beams = ops.shape(parents)
        starts = ops.arange(batch)[:, None] * beams  # [B, 1]
        rows = parents + ops.cast(starts, parents.dtype)  # [B, K]

        def reorder_beams(x: Tensor) -> Tensor:
            return ops.take(ops.reshape(x, (-1, ops.shape(x)[2])), rows, axis=0)

        layers = [
            layer._replace(tokens=layer.tokens.reorder(parents))
            for layer in self.layers
        ]
        coverage = self.coverage
        if coverage.shape[2] != 0:
            coverage = reorder_beams(coverage)  # [B, K, S]
        positions = reorder_beams(self.positions)  # [B, K, C]
        return self._replace(
            positions=positions, coverage=coverage, layers=tuple(layers)
        )

    def select(self, rows: Tensor, oldest: Tensor) -> Self:
        """Returns the cache of the sentences `rows`, int32 [R]; keeps `state`.

        Tokens are dropped whose position is below `oldest`, a scalar.
        """
        positions = ops.take(self.positions, rows, axis=0)  # [R, K, C]
        is_needed = ops.any(positions >= oldest, axis=1)  # [R, C]
        counts = ops.sum(ops.cast(is_needed, "int32"), axis=1)  # [R]
        # The needed columns come first; a sentence with fewer of them has others too.
        _, columns = ops.top_k(ops.cast(is_needed, "float32"), ops.max(counts))
        layers = []
        for layer in self.layers:
            tokens = layer.tokens.select(rows, columns)
            key = ops.take(layer.cross_key, rows, axis=0)  # [R, H, S, d_k]
            value = ops.take(layer.cross_value, rows, axis=0)  # [R, H, S, d_v]
            layers.append(LayerCache(tokens, key, value))
        every_row = ops.arange(ops.shape(rows)[0])
        return self._replace(
            positions=select_columns(positions, every_row, columns),  # [R, K, U]
            bias=ops.take(self.bias, rows, axis=0),  # [R, 1, 1, S]
            coverage=ops.take(self.coverage, rows, axis=0),  # [R, K, S]
            layers=tuple(layers),
        )

    def shapes(self) -> Self:
        """Returns the shapes that hold at every step, given the first cache.

        An axis that is empty in the first cache is None: it grows at each step, and
        shrinks in `select`.
        """
        shapes = keras.tree.map_structure(lambda x: tuple(x.shape), self)
        growing = keras.tree.map_structure(
            lambda x: tuple(size or None for size in x.shape), self.layers
        )
        return shapes._replace(
            positions=(None, None, None),
            coverage=(None, None, self.coverage.shape[2]),
            layers=growing,
        )
