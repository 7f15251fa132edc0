"""The columns of a decoding cache: one for each token, in tensors [B, H, C, ...].

A cache grows by the tokens of each step, or it is preallocated for many of them. XLA
needs the latter, because its sizes are fixed.
"""

from typing import NamedTuple, Self, TypeAlias

import keras
from keras import ops

from t2t_keras.model.backend import Nest, Tensor, arange
from t2t_keras.model.layers.linear import Kernels

# How many preallocated columns have tokens, a scalar; () where the cache grows.
UsedColumns: TypeAlias = Tensor | tuple[()]


def count_used(x: Tensor, used: UsedColumns) -> Tensor:
    """Returns the `UsedColumns` after `reserve_columns` of x [B, H, C, ...]."""
    if isinstance(used, tuple):
        return ops.convert_to_tensor(ops.shape(x)[2], "int32")
    return used


def reserve_columns(x: Tensor, columns: int | Tensor, fill: float = 0.0) -> Tensor:
    """Returns x [B, H, C, ...] with free columns appended, for a total of `columns`."""
    batch, heads, count, *sizes = ops.shape(x)
    free = ops.full((batch, heads, columns - count, *sizes), fill, x.dtype)
    return ops.concatenate([x, free], axis=2)


def append_columns(x: Tensor, new: Tensor, used: UsedColumns) -> Tensor:
    """Returns x [B, H, C, ...] with new columns [B, H, K, ...] after the others.

    A preallocated x keeps its size. On TensorFlow only XLA can write to it.
    """
    if isinstance(used, tuple):
        return ops.concatenate([x, new], axis=2)
    starts = [0, 0, used] + [0] * (len(x.shape) - 3)
    return ops.slice_update(x, starts, new)


def add_used(used: UsedColumns, new: Tensor) -> UsedColumns:
    """Returns the used columns after `append_columns` of new ones [B, H, K, ...]."""
    return () if isinstance(used, tuple) else used + ops.shape(new)[2]


def select_columns(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Returns x[rows[r], h, columns[r, u]], [R, H, U, ...], of x [B, H, C, ...]."""
    return take_columns(x, column_indices(x, rows, columns))


def column_indices(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Returns the indices [R, H, U] of x[rows[r], h, columns[r, u]] for `take_columns`.

    All tensors [B, H, C, ...] of one layer's cache have the same indices.
    """
    _, heads, count, *_ = ops.shape(x)
    starts = (rows[:, None] * heads + arange(heads)) * count  # [R, H]
    return starts[:, :, None] + columns[:, None, :]  # [R, H, U]


def take_columns(x: Tensor, indices: Tensor) -> Tensor:
    """Returns the columns [R, H, U, ...] of x [B, H, C, ...] at `column_indices`.

    The axes after C have known sizes.
    """
    return ops.take(ops.reshape(x, (-1, *x.shape[3:])), indices, axis=0)


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
        starts = arange(batch)[:, None] * beams  # [B, 1]
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
        every_row = arange(ops.shape(rows)[0])
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
