"""What encoder and decoder have in common: sub-layers, residuals, a stack (3.1)."""

from collections.abc import Sequence
from typing import Any, TypeVar

import keras

from t2t_keras.hparam import HParams
from t2t_keras.layers.attention import CrossAttention, SelfAttention
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.layer_norm import LayerNorm
from t2t_keras.layers.residual import Residual
from t2t_keras.model.variants import attention_class

Attention = TypeVar("Attention", SelfAttention, CrossAttention)


def attention(
    kind: type[Attention],
    hparams: HParams,
    name: str,
    dtype: Any,
    looks_ahead: bool = False,
) -> Attention:
    """Returns an attention sub-layer of the model's sizes.

    `looks_ahead` is for `attention_class`, which knows the variants.
    """
    return attention_class(kind, hparams, looks_ahead)(
        hparams.d_model,
        hparams.num_heads,
        hparams.key_size,
        hparams.value_size,
        dropout=hparams.attention_dropout,
        name=name,
        dtype=dtype,
    )


def feed_forward(hparams: HParams, dtype: Any) -> FeedForward:
    """Returns the feed-forward sub-layer."""
    return FeedForward(
        hparams.d_model,
        hparams.d_ff,
        hparams.ffn_dropout,
        name="feed_forward",
        dtype=dtype,
    )


def residuals(
    hparams: HParams, sublayers: Sequence[keras.layers.Layer]
) -> list[Residual]:
    """Returns the residual connection around each sub-layer."""
    return [
        Residual(
            hparams.d_model,
            hparams.dropout,
            hparams.norm,
            name=f"{sublayer.name}_residual",
            dtype="float32",
        )
        for sublayer in sublayers
    ]


class Stack(keras.layers.Layer):
    """N layers of one kind; with "pre" norm a last normalisation after them."""

    def __init__(
        self, kind: type[keras.layers.Layer], hparams: HParams, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.layers = [
            kind(hparams, name=f"layer_{i}", dtype=self.dtype_policy)
            for i in range(hparams.num_layers)
        ]
        pre_norm = hparams.norm == "pre"
        self.norm = LayerNorm(hparams.d_model, name="norm") if pre_norm else None

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights."""
        for layer in self.layers:
            layer.build(None)
        if self.norm:
            self.norm.build(None)

    def finish(self, x: Any) -> Any:
        """Returns what leaves the stack, given what left its last layer."""
        return self.norm(x) if self.norm else x
