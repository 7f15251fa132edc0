"""Dot-product attention without the factor 1 / sqrt(d_k) (3.2.1)."""

from typing import Any

from t2t_keras.layers.attention import (
    CrossAttention,
    SelfAttention,
    attention_weights,
)


class _Unscaled:
    """softmax(Q K^T) V.

    Of independent components with mean 0 and variance 1, q . k has the variance d_k;
    so the larger d_k, the more the softmax is saturated and the smaller its gradients:
    this is what the paper's factor is for. Mixed into a kind of attention, it replaces
    the function of queries and keys.
    """

    def head_weights(self, query: Any, key: Any, bias: Any) -> Any:
        """Returns softmax(Q K^T + bias), float32 [B, H, T, S]."""
        return attention_weights(query, key, bias, scale=1.0)


class UnscaledSelfAttention(_Unscaled, SelfAttention):
    """`SelfAttention` without the scale."""


class UnscaledCrossAttention(_Unscaled, CrossAttention):
    """`CrossAttention` without the scale."""
