"""Arrays [B, T, ...] as rows of matrices, in the order that their products prefer.

XLA copies an array to transpose it. In the order [T, B, H, d] it need not do so for the
products of attention: B and H lie side by side there, as one axis of T x d matrices. So
for XLA the rows of a position follow each other, and it stores whole arrays like that.
"""

from keras import ops

from t2t_keras.model.backend import Tensor
from t2t_keras.model.execution import current_execution


def to_rows(x: Tensor, *axes: int) -> Tensor:
    """Returns [B, T, ...] as rows [N, *axes], N = B T; without axes [N, ...]."""
    if current_execution().is_fused:
        x = ops.swapaxes(x, 0, 1)
    return ops.reshape(x, (-1, *(axes or x.shape[2:])))


def from_rows(
    rows: Tensor, batch: int | Tensor, length: int | Tensor, *axes: int
) -> Tensor:
    """Returns rows [N, ...] as [B, T, *axes]; without axes as [B, T, ...]."""
    axes = axes or rows.shape[1:]
    if current_execution().is_fused:
        return ops.swapaxes(ops.reshape(rows, (length, batch, *axes)), 0, 1)
    return ops.reshape(rows, (batch, length, *axes))
