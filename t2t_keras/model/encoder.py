"""The encoder (3.1): layers of self-attention and a feed-forward network."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from t2t_keras.model.backend import Block, Stack, Tensor, serializable
from t2t_keras.model.layers.attention import SelfAttention
from t2t_keras.model.layers.dropout import DropoutSeed, training_seed
from t2t_keras.model.layers.linear import FeedForward
from t2t_keras.model.layers.masks import masking_bias
from t2t_keras.model.layers.residual import Residual


class EncoderLayerOutput(NamedTuple):
    """The output [B, S, D] and the self-attention weights [B, H, S, S]."""

    output: Tensor
    self_attention_scores: Tensor


@serializable
class EncoderLayer(Block):
    """Self-attention, then the feed-forward network, each with its residual (3.1).

    Args:
        self_attention: the first sub-layer, such as `SelfAttention`.
        feed_forward: the second, such as `FeedForward`.
        residuals: the residual connections around them.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        self_attention: SelfAttention,
        feed_forward: FeedForward,
        residuals: Sequence[Residual],
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.self_attention_residual, self.feed_forward_residual = residuals

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        *,
        seed: DropoutSeed | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool = False,
    ) -> Tensor | EncoderLayerOutput:
        """Applies the layer.

        Args:
            x: [B, S, D]
            attention_mask: bool [B, S, S], true where a position is attended to.
            seed: dropout seed, see `Dropout`.
            mask: bool [B, S], true where x has a token; Keras passes the mask of x.
            x_mask: the same, see `SelfAttention.call`.
            return_attention_scores: whether to return, after the output [B, S, D], the
                self-attention weights [B, H, S, S].
            training: see `Dropout.call`.
        """
        seed = training_seed(self, seed, training)
        bias = masking_bias(attention_mask, mask, x_mask)
        outputs = self.encode(x, bias, seed)
        return outputs if return_attention_scores else outputs.output

    def encode(
        self, x: Tensor, bias: Tensor | None, seed: DropoutSeed | None
    ) -> EncoderLayerOutput:
        """Applies the layer to x [B, S, D].

        The bias, broadcastable to [B, H, S, S], masks padding or other segments.
        """
        residual = self.self_attention_residual
        y, scores, _ = self.self_attention.compute_attention(
            residual.preprocess(x), bias, seed
        )
        x = residual.postprocess(x, y, seed)
        residual = self.feed_forward_residual
        y = self.feed_forward(residual.preprocess(x), seed=seed)
        x = residual.postprocess(x, y, seed)
        return EncoderLayerOutput(x, scores)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        residuals = [self.self_attention_residual, self.feed_forward_residual]
        arguments = {
            "self_attention": self.self_attention,
            "feed_forward": self.feed_forward,
            "residuals": residuals,
        }
        return super().get_config() | keras.saving.serialize_keras_object(arguments)


class EncoderOutput(NamedTuple):
    """The output [B, S, D] and the self-attention weights [B, H, S, S] by layer."""

    output: Tensor
    self_attention_scores: list[Tensor]


@serializable
class Encoder(Stack):
    """A stack of N encoder layers, with the arguments of `Stack`."""

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        *,
        seed: DropoutSeed | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool = False,
    ) -> Tensor | EncoderOutput:
        """Encodes, with the arguments of `EncoderLayer.call`.

        The attention weights, if asked for, are a list with an item for each layer.
        """
        seed = training_seed(self, seed, training)
        bias = masking_bias(attention_mask, mask, x_mask)
        outputs = self.encode(x, bias, seed)
        return outputs if return_attention_scores else outputs.output

    def encode(
        self, x: Tensor, bias: Tensor | None = None, seed: DropoutSeed | None = None
    ) -> EncoderOutput:
        """Encodes, with the arguments of `EncoderLayer.encode`."""
        scores = []
        for layer in self.layers:
            x, layer_scores = layer.encode(x, bias, seed)
            scores.append(layer_scores)
        return EncoderOutput(self.norm(x) if self.norm else x, scores)
