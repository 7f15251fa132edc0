"""The model (section 3), written in Keras operations only, for any Keras backend.

`layers` has the layers, each written like its equation; `encoder` and `decoder` stack
them, and `parts` makes them from hyper-parameters. `transformer` is the model: teacher
forcing, on rows with one pair or with several, and decoding step by step. `loss` has
the label-smoothed cross-entropy and its gradient, `schedule` the learning rate for
Keras's optimizers, `backend` the tensors and base classes of layers, and `execution`
the formulas that depend on what executes them. `build_model`, of `registry`, makes the
model that hyper-parameters name. Importing this package imports Keras.
"""

from t2t_keras.model.decoder import Decoder, DecoderLayer, DecoderMask
from t2t_keras.model.encoder import Encoder, EncoderLayer
from t2t_keras.model.layers import (
    Block,
    CrossAttention,
    Dropout,
    Embedding,
    FeedForward,
    Layer,
    LayerNorm,
    LearnedPositions,
    Linear,
    Residual,
    SelfAttention,
    WindowSelfAttention,
)
from t2t_keras.model.layers.cache import DecodingCache, LayerCache
from t2t_keras.model.layers.masks import Packing
from t2t_keras.model.loss import LabelSmoothedCrossEntropy
from t2t_keras.model.schedule import Schedule
from t2t_keras.model.transformer import Transformer
from t2t_keras.registry import build_model

__all__ = [
    "Block",
    "CrossAttention",
    "Decoder",
    "DecoderLayer",
    "DecoderMask",
    "DecodingCache",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LabelSmoothedCrossEntropy",
    "Layer",
    "LayerCache",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Packing",
    "Residual",
    "Schedule",
    "SelfAttention",
    "Transformer",
    "WindowSelfAttention",
    "build_model",
]
