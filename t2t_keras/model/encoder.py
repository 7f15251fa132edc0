"""The encoder: a stack of self-attention and feed-forward layers (3.1)."""

from typing import Any

import keras

from t2t_keras.hparam import HParams
from t2t_keras.layers.attention import SelfAttention
from t2t_keras.model.stack import Stack, attention, feed_forward, residuals


class EncoderLayer(keras.layers.Layer):
    """Self-attention, then the feed-forward network, each with its residual."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        dtype = self.dtype_policy
        self.self_attention = attention(
            SelfAttention, hparams, "self_attention", dtype, looks_ahead=True
        )
        self.feed_forward = feed_forward(hparams, dtype)
        self.residuals = residuals(hparams, [self.self_attention, self.feed_forward])

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights."""
        for layer in (self.self_attention, self.feed_forward, *self.residuals):
            layer.build(None)

    def call(self, x: Any, bias: Any, seed: Any = None) -> Any:
        """Maps [B, S, D] to [B, S, D]; `bias` [B, 1, 1, S] hides padding."""
        around_attention, around_feed_forward = self.residuals
        x = around_attention(
            x, sublayer=lambda y: self.self_attention(y, bias, seed=seed), seed=seed
        )
        return around_feed_forward(
            x, sublayer=lambda y: self.feed_forward(y, seed=seed), seed=seed
        )


class Encoder(Stack):
    """N encoder layers."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(EncoderLayer, hparams, **kwargs)

    def call(self, x: Any, bias: Any, seed: Any = None) -> Any:
        """Maps [B, S, D] to [B, S, D]; `bias` [B, 1, 1, S] hides padding."""
        for layer in self.layers:
            x = layer(x, bias, seed=seed)
        return self.finish(x)
