"""The Transformer with the features of tensor2tensor's and Marian's models."""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras.model.backend import Shape, Tensor, serializable
from t2t_keras.model.layers import FeedForward, Layer, LayerNorm, sinusoids
from t2t_keras.model.layers.attention import AttentionOptions
from t2t_keras.model.transformer import Transformer

from .extended_transformer import ExtendedHParams

TARGET_SPACES = 32


class ExtendedTransformer(Transformer):
    """`Transformer` with the options of `ExtendedHParams`."""

    hparams: ExtendedHParams

    def build(self, input_shape: Shape) -> None:
        """Creates all weights."""
        self.target_space: TargetSpace | None = None
        if self.hparams.target_space:
            self.target_space = TargetSpace(self.hparams.d_model, name="target_space")
        super().build(input_shape)
        if self.hparams.output_bias:
            self.output_bias = self.add_weight(
                name="output_bias",
                shape=(self.softmax_embedding.vocab_size,),
                initializer="zeros",
                autocast=False,
            )

    def make_positions(self) -> Callable[[Tensor], Tensor]:
        """Returns a map of integer positions [...] to float32 encodings [..., D]."""
        encodings = {"t2t": t2t_timing_signal, "halves": sinusoids_in_halves}
        encoding = encodings.get(self.hparams.position)
        if encoding is None:
            return super().make_positions()
        return functools.partial(encoding, d_model=self.hparams.d_model)

    def attention_options(self, name: str) -> AttentionOptions:
        """Returns the arguments of both attention layers."""
        options = super().attention_options(name)
        options["use_bias"] = self.hparams.attention_bias
        return options

    def make_feed_forward(self) -> FeedForward:
        """Returns a feed-forward network with the activation of the hparams."""
        return FeedForward(
            self.hparams.d_model,
            self.hparams.d_ff,
            self.hparams.ffn_dropout,
            self.hparams.activation,
            name="feed_forward",
            dtype=self.dtype_policy,
        )

    def make_norm(self) -> LayerNorm:
        """Returns a layer normalization with the epsilon of the hparams."""
        return LayerNorm(self.hparams.d_model, self.hparams.norm_epsilon, name="norm")

    def source_input(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Returns the encoder's input [B, S, D], given the embeddings [B, S, D]."""
        x = super().source_input(x, positions)
        return self.target_space(x) if self.target_space else x


@serializable
class TargetSpace(Layer):
    """A learned vector that is added to each source embedding.

    In tensor2tensor it is one of `TARGET_SPACES` rows of a matrix; the row depends on
    the target, such as German subwords. Here it is initialized like a row.
    """

    def __init__(self, d_model: int, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32"} | kwargs)
        self.d_model = d_model

    def build(self, input_shape: Shape) -> None:
        """Creates the vector."""
        # This is Glorot's limit for tensor2tensor's matrix.
        limit = (6 / (TARGET_SPACES + self.d_model)) ** 0.5
        self.vector = self.add_weight(
            name="vector",
            shape=(self.d_model,),
            initializer=keras.initializers.RandomUniform(-limit, limit),
        )

    def call(self, x: Tensor) -> Tensor:
        """Adds the vector to float32 embeddings [B, S, D]."""
        return x + ops.cast(self.vector, x.dtype)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"d_model": self.d_model}


def sinusoids_in_halves(positions: Tensor, d_model: int) -> Tensor:
    """Returns `sinusoids` with all sines before all cosines, as transformers has them.

    Args:
        positions: see `sinusoids`.
        d_model: see `sinusoids`.
    """
    shape = ops.shape(positions)
    pairs = ops.reshape(sinusoids(positions, d_model), (*shape, d_model // 2, 2))
    halves = ops.swapaxes(pairs, -1, -2)  # [..., 2, D / 2]
    return ops.reshape(halves, (*shape, d_model))


def t2t_timing_signal(positions: Tensor, d_model: int) -> Tensor:
    """Returns tensor2tensor's positional encoding: all sines, then all cosines.

    It also divides by D / 2 - 1 where the paper divides by D / 2, so that the longest
    wavelength is 10000 * 2 pi exactly.

    Args:
        positions: [...], numbers.
        d_model: D, even.

    Returns:
        [..., D], float32.
    """
    step = math.log(10000.0) / max(d_model // 2 - 1, 1)
    rates = np.exp(-step * np.arange(d_model // 2))  # [D / 2]
    angles = ops.cast(positions, "float32")[..., None] * rates.astype("float32")
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
