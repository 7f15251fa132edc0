"""The decoder (3.1): layers that attend to the target so far and to the source."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from t2t_keras.model.backend import Block, Stack, Tensor, serializable
from t2t_keras.model.layers.attention import CrossAttention, SelfAttention, TokenCache
from t2t_keras.model.layers.cache import LayerCache
from t2t_keras.model.layers.dropout import DropoutSeed, source_keys, training_seed
from t2t_keras.model.layers.linear import FeedForward, Kernels
from t2t_keras.model.layers.masks import masking_bias
from t2t_keras.model.layers.residual import Residual


class DecoderMask(NamedTuple):
    """Where a decoder's positions may attend, besides padding; None: everywhere.

    Self-attention, which is causal, excludes later positions in any case.
    """

    self_attention: Tensor | None = None  # bool [B, T, T], true where one may attend
    cross_attention: Tensor | None = None  # bool [B, T, S]


class DecoderBias(NamedTuple):
    """What is added to the scores of a decoder's attention; None: nothing.

    Attributes:
        self_attention: in packed rows [B, 1, T, T], masks other segments; in a decoding
            step [B, 1, K, C + K], masks the tokens of other hypotheses.
        cross_attention: broadcastable to [B, H, T, S], masks the source's padding.
    """

    self_attention: Tensor | None = None
    cross_attention: Tensor | None = None


class DecoderLayerOutput(NamedTuple):
    """What a decoder layer returns; in a decoding step the cache has the new tokens."""

    output: Tensor  # [B, T, D]
    self_attention_scores: Tensor  # [B, H, T, T]
    cross_attention_scores: Tensor  # [B, H, T, S]
    cache: LayerCache


@serializable
class DecoderLayer(Block):
    """Masked self-attention, cross-attention, feed-forward network (3.1).

    Args:
        self_attention: the first sub-layer, a causal `SelfAttention`.
        cross_attention: the second, such as `CrossAttention`.
        feed_forward: the third, such as `FeedForward`.
        residuals: the residual connections around them.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        self_attention: SelfAttention,
        cross_attention: CrossAttention,
        feed_forward: FeedForward,
        residuals: Sequence[Residual],
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        (
            self.self_attention_residual,
            self.cross_attention_residual,
            self.feed_forward_residual,
        ) = residuals

    def call(
        self,
        x: Tensor,
        encoder_output: Tensor,
        attention_mask: Tensor | DecoderMask | None = None,
        *,
        seed: DropoutSeed | None = None,
        x_mask: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Applies the layer to all positions at once.

        Args:
            x: [B, T, D]
            encoder_output: [B, S, D]
            attention_mask: bool [B, T, T], see `SelfAttention.call`, or a `DecoderMask`
                for both attentions; None: only padding is masked.
            seed: dropout seed, see `Dropout`.
            x_mask: bool [B, T], true where x has a token; Keras passes the mask of x.
            encoder_output_mask: bool [B, S]; Keras passes the mask of `encoder_output`.
            return_attention_scores: whether to return, after the output [B, T, D], the
                weights of self-attention [B, H, T, T] and cross-attention [B, H, T, S].
            training: see `Dropout.call`.
        """
        seed = training_seed(self, seed, training)
        bias = _masking_biases(attention_mask, x_mask, encoder_output_mask)
        cache = self.init_cross_cache(encoder_output)
        outputs = self.decode(x, cache, bias, seed)
        return outputs[:3] if return_attention_scores else outputs.output

    def decode(
        self,
        x: Tensor,
        cache: LayerCache,
        bias: DecoderBias,
        seed: DropoutSeed | None = None,
        kernels: Kernels | None = None,
    ) -> DecoderLayerOutput:
        """Applies the layer to all positions at once, or in a decoding step.

        In a decoding step the new tokens of a sentence's K hypotheses take the place of
        positions: all of them attend to one list of tokens, and to the same source.

        Args:
            x: [B, T, D], in a decoding step [B, K, D].
            cache: the source's keys and values, and in a decoding step C tokens.
            bias: what is added to the scores of attention.
            seed: dropout seed, see `Dropout`.
            kernels: see `Linear.call`; None except in a decoding step.
        """
        residual = self.self_attention_residual
        y, self_attention_scores, tokens = self.self_attention.compute_attention(
            residual.preprocess(x), bias.self_attention, seed, cache.tokens, kernels
        )
        x = residual.postprocess(x, y, seed)
        residual = self.cross_attention_residual
        y, cross_attention_scores = self.cross_attention.compute_attention(
            residual.preprocess(x),
            cache.cross_key,
            cache.cross_value,
            bias.cross_attention,
            source_keys(seed),
            kernels,
        )
        x = residual.postprocess(x, y, seed)
        residual = self.feed_forward_residual
        y = self.feed_forward(residual.preprocess(x), seed=seed, kernels=kernels)
        x = residual.postprocess(x, y, seed)
        cache = cache._replace(tokens=tokens)
        return DecoderLayerOutput(
            x, self_attention_scores, cross_attention_scores, cache
        )

    def init_cross_cache(
        self, encoder_output: Tensor, tokens: TokenCache | None = None
    ) -> LayerCache:
        """Returns the cache of the source [B, S, D], and of the tokens in a step."""
        key, value = self.cross_attention.project_key_value(encoder_output)
        return LayerCache(tokens, key, value)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        residuals = [
            self.self_attention_residual,
            self.cross_attention_residual,
            self.feed_forward_residual,
        ]
        arguments = {
            "self_attention": self.self_attention,
            "cross_attention": self.cross_attention,
            "feed_forward": self.feed_forward,
            "residuals": residuals,
        }
        return super().get_config() | keras.saving.serialize_keras_object(arguments)


def _masking_biases(
    attention_mask: Tensor | DecoderMask | None,
    x_mask: Tensor | None,
    encoder_output_mask: Tensor | None,
) -> DecoderBias:
    """Returns the bias of the masks that a user and Keras pass to `call`."""
    # A functional model that was loaded passes a list for a `DecoderMask`.
    if not isinstance(attention_mask, tuple | list):
        attention_mask = DecoderMask(attention_mask)
    self_attention, cross_attention = attention_mask
    return DecoderBias(
        masking_bias(self_attention, x_mask),
        masking_bias(cross_attention, encoder_output_mask),
    )


class DecoderOutput(NamedTuple):
    """The output [B, T, D]; scores and cache of each layer as `DecoderLayerOutput`."""

    output: Tensor
    self_attention_scores: list[Tensor]
    cross_attention_scores: list[Tensor]
    caches: list[LayerCache]


@serializable
class Decoder(Stack):
    """A stack of N decoder layers, with the arguments of `Stack`."""

    def call(
        self,
        x: Tensor,
        encoder_output: Tensor,
        attention_mask: Tensor | DecoderMask | None = None,
        *,
        seed: DropoutSeed | None = None,
        x_mask: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor], list[Tensor]]:
        """Decodes all positions, with the arguments of `DecoderLayer.call`.

        The attention weights, if asked for, are lists with an item for each layer.
        """
        seed = training_seed(self, seed, training)
        bias = _masking_biases(attention_mask, x_mask, encoder_output_mask)
        caches = self.init_cross_caches(encoder_output)
        outputs = self.decode(x, caches, bias, seed)
        return outputs[:3] if return_attention_scores else outputs.output

    def init_cross_caches(self, encoder_output: Tensor) -> list[LayerCache]:
        """Returns the cache of the source's keys and values for each layer."""
        return [layer.init_cross_cache(encoder_output) for layer in self.layers]

    def decode(
        self,
        x: Tensor,
        caches: Sequence[LayerCache],
        bias: DecoderBias,
        seed: DropoutSeed | None = None,
        kernels: Kernels | None = None,
    ) -> DecoderOutput:
        """Decodes with a cache for each layer, see `DecoderLayer.decode`."""
        outputs = []
        for layer, cache in zip(self.layers, caches, strict=True):
            output = layer.decode(x, cache, bias, seed, kernels)
            x = output.output
            outputs.append(output)
        return DecoderOutput(
            output=self.norm(x) if self.norm else x,
            self_attention_scores=[x.self_attention_scores for x in outputs],
            cross_attention_scores=[x.cross_attention_scores for x in outputs],
            caches=[x.cache for x in outputs],
        )
