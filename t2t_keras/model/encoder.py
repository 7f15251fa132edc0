"""The encoder: a stack of self-attention and feed-forward layers (3.1)."""

from typing import Any

import keras

from t2t_keras.hparam import HParams
from t2t_keras.layers.attention import SelfAttention
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.residual import Residual, layer_norm


def attention_options(hparams: HParams) -> dict[str, Any]:
    """The arguments that every attention layer of a model is made with."""
    return {
        "d_model": hparams.d_model,
        "num_heads": hparams.num_heads,
        "key_size": hparams.key_size,
        "value_size": hparams.value_size,
        "dropout": hparams.attention_dropout,
    }


class EncoderLayer(keras.layers.Layer):
    """Self-attention, then the feed-forward network, each with its residual."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        policy = self.dtype_policy
        self.self_attention = SelfAttention(
            **attention_options(hparams), name="self_attention", dtype=policy
        )
        self.feed_forward = FeedForward(
            hparams.d_model,
            hparams.d_ff,
            hparams.ffn_dropout,
            name="feed_forward",
            dtype=policy,
        )
        self.residuals = [
            Residual(
                hparams.d_model,
                hparams.dropout,
                hparams.norm,
                name=f"{sublayer.name}_residual",
                dtype="float32",
            )
            for sublayer in (self.self_attention, self.feed_forward)
        ]

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


class Encoder(keras.layers.Layer):
    """N encoder layers; with "pre" norm a last normalisation after them."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.d_model = hparams.d_model
        self.layers = [
            EncoderLayer(hparams, name=f"layer_{i}", dtype=self.dtype_policy)
            for i in range(hparams.num_layers)
        ]
        self.norm = layer_norm("norm") if hparams.norm == "pre" else None

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights."""
        for layer in self.layers:
            layer.build(None)
        if self.norm:
            self.norm.build((None, None, self.d_model))

    def call(self, x: Any, bias: Any, seed: Any = None) -> Any:
        """Maps [B, S, D] to [B, S, D]; `bias` [B, 1, 1, S] hides padding."""
        for layer in self.layers:
            x = layer(x, bias, seed=seed)
        return self.norm(x) if self.norm else x
