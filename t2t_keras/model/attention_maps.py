"""The attention weights of every head of a model, to look at (4, appendix)."""

import functools
from typing import Any, NamedTuple

from keras import ops

from t2t_keras.layers.attention import (
    CrossAttention,
    SelfAttention,
    causal_bias,
    padding_bias,
)
from t2t_keras.layers.residual import Residual
from t2t_keras.model.transformer import PAD, Transformer


class AttentionMaps(NamedTuple):
    """Weights, one tensor for each layer; every row has the sum 1.

    Row t of `decoder` and `cross` belongs to the position that predicts target t. What
    it sees in column t of `decoder` is the target before: column 0 is the start.

    Attributes:
        encoder: the source to itself, L of [B, H, S, S].
        decoder: the target to itself, L of [B, H, T, T].
        cross: the target to the source, L of [B, H, T, S].
    """

    encoder: list[Any]
    decoder: list[Any]
    cross: list[Any]


def attention_maps(model: Transformer, source: Any, target: Any) -> AttentionMaps:
    """Returns all attention weights under teacher forcing, without dropout.

    Every layer runs as it always does; its weights are computed a second time from what
    enters its attention, so that the model itself never has to hand them out.

    Args:
        model: any, of any kind of attention.
        source: ids [B, S], padded with 0.
        target: ids [B, T], padded with 0; not shifted.
    """
    maps = AttentionMaps([], [], [])
    is_source = padding_bias(source == PAD)
    x = model._embed(model.source_embedding, source, 0)
    for layer in model.encoder.layers:
        y = _entering(layer.residuals[0], x)
        maps.encoder.append(_self_weights(layer.self_attention, y, is_source))
        x = layer(x, is_source)
    memory = model.encoder.finish(x)

    shifted = ops.pad(target, ((0, 0), (1, 0)))[:, :-1]
    x = model._embed(model.target_embedding, shifted, 0)
    is_past = causal_bias(ops.shape(target)[1])
    for layer in model.decoder.layers:
        around_self, around_cross, _ = layer.residuals
        y = _entering(around_self, x)
        maps.decoder.append(_self_weights(layer.self_attention, y, is_past))
        attend = functools.partial(layer.self_attention, bias=is_past)
        y = _entering(around_cross, around_self(x, sublayer=attend))
        maps.cross.append(_cross_weights(layer.cross_attention, y, memory, is_source))
        x = layer(x, memory, is_source)
    return maps


def _entering(residual: Residual, x: Any) -> Any:
    """Returns what a residual connection gives its sub-layer."""
    return residual.norm(x) if residual.norm_first else x


def _self_weights(attention: SelfAttention, x: Any, bias: Any) -> Any:
    query, key, _ = attention._project(x)
    return attention.head_weights(query, key, bias)


def _cross_weights(attention: CrossAttention, x: Any, memory: Any, bias: Any) -> Any:
    (query,) = attention._split(attention.query_projection(x), attention.key_size)
    key, _ = attention.project_memory(memory)
    return attention.head_weights(query, key, bias)
