"""Rotary positions (RoPE)."""

import keras
import numpy as np
from keras import ops

from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers import SelfAttention, SelfAttentionCache, bias_positions


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotates queries or keys by their positions (RoPE, Su et al., 2021).

    The pairs (x[i], x[i + d / 2]) are rotated by angles proportional to the position.
    The product of a query and a key then depends on the distance between them.

    Args:
        x: [B, H, T, d]; d is even.
        positions: [1, T] or [B, T], of any numeric dtype.
    """
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-np.arange(half) / half)
    angles = ops.cast(positions, "float32")[:, None, :, None] * rates.astype("float32")
    cos = ops.cast(ops.cos(angles), x.dtype)  # [B, 1, T, d / 2]
    sin = ops.cast(ops.sin(angles), x.dtype)
    a = x[..., :half]
    b = x[..., half:]
    return ops.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


@keras.saving.register_keras_serializable("t2t_keras")
class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions."""

    def encode_positions(
        self,
        query: Tensor,
        key: Tensor,
        bias: Tensor | None,
        cache: SelfAttentionCache | None,
    ) -> tuple[Tensor, Tensor]:
        """Rotates queries and keys by their positions."""
        if cache is None:
            positions = bias_positions(bias, ops.shape(query)[2])  # [1 or B, T]
        else:
            assert bias is not None
            visible = ops.cast(ops.equal(bias[:, 0], 0), "int32")  # [B, K, C + K]
            positions = ops.sum(visible, axis=2) - 1  # [B, K]
        return rotate(query, positions), rotate(key, positions)
