"""The Transformer's layers, written like the paper's equations (3.1 to 3.5, 5.4).

Letters in shapes, here and everywhere: B batch size, S source length, T target length,
D model width (d_model), F inner width (d_ff), H heads, K beams, V vocabulary size; N is
any number of rows, C the number of tokens in a decoding cache.

`attention` is multi-head attention, to itself and to the source; `window_attention` is
the restricted self-attention of section 4, `cache` keeps keys and values while
decoding, and `masks` has the biases. `linear`, `residual`, `embedding` and `dropout`
are the other layers.
"""

from t2t_keras.model.backend import Block, Layer, Stack
from t2t_keras.model.layers.attention import (
    AttentionOutput,
    CrossAttention,
    MultiHead,
    SelfAttention,
    SelfAttentionCache,
    SelfAttentionOutput,
    TokenCache,
    attention_weights,
    scaled_dot_product,
)
from t2t_keras.model.layers.cache import (
    UsedColumns,
    add_used,
    append_columns,
    count_used,
    reserve_columns,
    select_columns,
)
from t2t_keras.model.layers.dropout import Dropout, fold_in
from t2t_keras.model.layers.embedding import Embedding, LearnedPositions, sinusoids
from t2t_keras.model.layers.linear import FeedForward, Kernels, Linear
from t2t_keras.model.layers.masks import (
    MASKED,
    bias_positions,
    causal_bias,
    padding_bias,
)
from t2t_keras.model.layers.residual import LayerNorm, Residual
from t2t_keras.model.layers.window_attention import WindowSelfAttention

__all__ = [
    "MASKED",
    "AttentionOutput",
    "Block",
    "CrossAttention",
    "Dropout",
    "Embedding",
    "FeedForward",
    "Kernels",
    "Layer",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "MultiHead",
    "Residual",
    "SelfAttention",
    "SelfAttentionCache",
    "SelfAttentionOutput",
    "Stack",
    "TokenCache",
    "UsedColumns",
    "WindowSelfAttention",
    "add_used",
    "append_columns",
    "attention_weights",
    "bias_positions",
    "causal_bias",
    "count_used",
    "fold_in",
    "padding_bias",
    "reserve_columns",
    "scaled_dot_product",
    "select_columns",
    "sinusoids",
]
