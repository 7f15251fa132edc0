"""The columns of a decoding cache: one for each token, in tensors [B, H, C, ...].

A cache grows by the tokens of each step, or it is preallocated for many of them. XLA
needs the latter, because its sizes are fixed.
"""

from typing import TypeAlias

from keras import ops

from t2t_keras.model.backend import Tensor

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
    starts = (rows[:, None] * heads + ops.arange(heads)) * count  # [R, H]
    return starts[:, :, None] + columns[:, None, :]  # [R, H, U]


def take_columns(x: Tensor, indices: Tensor) -> Tensor:
    """Returns the columns [R, H, U, ...] of x [B, H, C, ...] at `column_indices`.

    The axes after C have known sizes.
    """
    return ops.take(ops.reshape(x, (-1, *x.shape[3:])), indices, axis=0)
