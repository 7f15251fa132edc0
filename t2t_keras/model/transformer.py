"""The Transformer: encoder, decoder, and decoding step by step with a cache (3)."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import keras
from keras import ops

from t2t_keras.hparam import HParams
from t2t_keras.model.backend import Nest, Shape, Tensor
from t2t_keras.model.layers import (
    MASKED,
    Block,
    CrossAttention,
    Dropout,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    Residual,
    SelfAttention,
    padding_bias,
    select_columns,
    serializable,
    sinusoids,
    using_matrices,
    with_masks,
)
from t2t_keras.model.window_attention import WindowSelfAttention

PAD = 0


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
        bias: Tensor | None = None,
        seed: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """Applies the layer.

        Args:
            x: [B, S, D]
            bias: [B, 1, 1, S], masks padding, see `padding_bias`.
            seed: dropout seed, see `Dropout`.
            attention_mask: bool [B, S, S], see `SelfAttention.call`.
            mask: bool [B, S], true where x has a token; Keras passes that of x.
            x_mask: the same, see `SelfAttention.call`.
            return_attention_scores: whether to return the attention weights.

        Returns:
            The output [B, S, D]; and if asked for, the self-attention weights
            [B, H, S, S].
        """
        bias = with_masks(bias, attention_mask, mask, x_mask)
        residual = self.self_attention_residual
        y, weights, _ = self.self_attention.compute_attention(
            residual.preprocess(x), bias, seed
        )
        x = residual.postprocess(x, y, seed)
        residual = self.feed_forward_residual
        y = self.feed_forward(residual.preprocess(x), seed=seed)
        x = residual.postprocess(x, y, seed)
        return (x, weights) if return_attention_scores else x


class LayerCache(NamedTuple):
    """What a decoder layer attends to.

    Attributes:
        tokens: the cache of the self-attention, such as a `SelfAttentionCache`, a
            NamedTuple with the methods `select` and `reorder`; None where all positions
            are decoded at once.
        cross_key: [B, H, S, d_k], the source's keys, the same for all beams.
        cross_value: [B, H, S, d_v], the source's values.
    """

    tokens: Nest
    cross_key: Tensor
    cross_value: Tensor


class Cache(NamedTuple):
    """What the model keeps between decoding steps.

    The hypotheses of a sentence often share their first tokens. So the tokens of all of
    them form one list, with C columns, and `positions` says which of them each
    hypothesis consists of: when a hypothesis continues another, keys and values stay
    where they are.

    Attributes:
        positions: [B, K, C] float32, the position of the token in column c if it is in
            hypothesis k, otherwise -1. (A GPU compares integers on the host.)
        bias: [B, 1, 1, S], masks the source's padding.
        coverage: [B, K, S] float32, the cross-attention weights of the last layer, the
            mean of its heads, summed over the steps; [B, K, 0] unless tracked.
        matrices: what the layers multiply by, see `using_matrices`.
        layers: the cache of each decoder layer.
    """

    positions: Tensor
    bias: Tensor
    coverage: Tensor
    matrices: tuple[Tensor, ...]
    layers: tuple[LayerCache, ...]


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
        self.self_attention_residual, *others = residuals
        self.cross_attention_residual, self.feed_forward_residual = others

    def call(
        self,
        x: Tensor,
        encoder_output: Tensor | None = None,
        bias: Tensor | None = None,
        cache: LayerCache | None = None,
        self_bias: Tensor | None = None,
        seed: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """Applies the layer to all positions at once, or in a decoding step.

        In a decoding step the new tokens of a sentence's K hypotheses take the place of
        positions: all of them attend to one list of tokens, and to the same source.

        Args:
            x: [B, T, D], in a decoding step [B, K, D].
            encoder_output: the encoded source [B, S, D]; None with a cache.
            bias: [B, 1, 1, S], masks the source's padding, see `padding_bias`.
            cache: the source's keys and values, and in a decoding step C tokens; None:
                it is `init_cross_cache(encoder_output)`.
            self_bias: in a decoding step [B, 1, K, C + K], masks the tokens of other
                hypotheses.
            seed: dropout seed, see `Dropout`.
            attention_mask: bool [B, T, T], for the self-attention, see
                `SelfAttention.call`.
            cross_attention_mask: bool [B, T, S], see `CrossAttention.call`.
            mask: bool [B, T], true where x has a token; it is not used in a decoding
                step.
            x_mask: the same; Keras passes that of x.
            encoder_output_mask: bool [B, S], true where the source has a token; Keras
                passes the mask of `encoder_output`.
            return_attention_scores: whether to return more than the output.

        Returns:
            The output [B, T, D]; and if asked for, the self-attention weights
            [B, H, T, T], the cross-attention weights [B, H, T, S], and the cache, in a
            decoding step with the new tokens.
        """
        cache = cache or self.init_cross_cache(encoder_output)
        bias = with_masks(bias, cross_attention_mask, encoder_output_mask)
        if cache.tokens is None:
            self_bias = with_masks(self_bias, attention_mask, mask, x_mask)
        residual = self.self_attention_residual
        y, self_attention_scores, tokens = self.self_attention.compute_attention(
            residual.preprocess(x), self_bias, seed, cache.tokens
        )
        x = residual.postprocess(x, y, seed)
        residual = self.cross_attention_residual
        y, cross_attention_scores = self.cross_attention.compute_attention(
            residual.preprocess(x), cache.cross_key, cache.cross_value, bias, seed
        )
        x = residual.postprocess(x, y, seed)
        residual = self.feed_forward_residual
        y = self.feed_forward(residual.preprocess(x), seed=seed)
        x = residual.postprocess(x, y, seed)
        if not return_attention_scores:
            return x
        return (
            x,
            self_attention_scores,
            cross_attention_scores,
            cache._replace(tokens=tokens),
        )

    def init_cross_cache(
        self, encoder_output: Tensor, tokens: Nest = None
    ) -> LayerCache:
        """Returns the cache of the source's keys and values, and of some tokens.

        Args:
            encoder_output: [B, S, D]
            tokens: the cache of the self-attention.
        """
        return LayerCache(
            tokens, *self.cross_attention.project_key_value(encoder_output)
        )


class _Stack(Block):
    """A stack of N layers.

    Args:
        layers: the layers.
        norm: the layer normalization that follows them with norm "pre", or None.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        layers: Sequence[keras.layers.Layer],
        norm: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.layers = list(layers)
        self.norm = norm


@serializable
class Encoder(_Stack):
    """A stack of N encoder layers; the arguments are those of `_Stack`."""

    def call(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        seed: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """Encodes; arguments are those of `EncoderLayer.call`.

        Returns:
            The output [B, S, D]; and if asked for, the attention weights [B, H, S, S]
            of each layer.
        """
        bias = with_masks(bias, attention_mask, mask, x_mask)
        maps = []
        for layer in self.layers:
            x, weights = layer(x, bias, seed=seed, return_attention_scores=True)
            maps.append(weights)
        x = self.norm(x) if self.norm else x
        return (x, maps) if return_attention_scores else x


@serializable
class Decoder(_Stack):
    """A stack of N decoder layers; the arguments are those of `_Stack`."""

    def call(
        self,
        x: Tensor,
        encoder_output: Tensor | None = None,
        bias: Tensor | None = None,
        caches: Sequence[LayerCache] | None = None,
        self_bias: Tensor | None = None,
        seed: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """Decodes; arguments are those of `DecoderLayer.call`, with a cache for each.

        Returns:
            The output [B, T, D]; and if asked for, the other results of each layer.
        """
        after, self_maps, cross_maps = [], [], []
        bias = with_masks(bias, cross_attention_mask, encoder_output_mask)
        if caches is None:
            self_bias = with_masks(self_bias, attention_mask, mask, x_mask)
            caches = [layer.init_cross_cache(encoder_output) for layer in self.layers]
        for layer, cache in zip(self.layers, caches, strict=True):
            x, self_attention_scores, cross_attention_scores, cache = layer(
                x,
                bias=bias,
                cache=cache,
                self_bias=self_bias,
                seed=seed,
                return_attention_scores=True,
            )
            after.append(cache)
            self_maps.append(self_attention_scores)
            cross_maps.append(cross_attention_scores)
        x = self.norm(x) if self.norm else x
        return (x, self_maps, cross_maps, after) if return_attention_scores else x


class AttentionMaps(NamedTuple):
    """The attention weights of a model, one tensor per layer; every row sums to 1.

    Row t of `decoder` and `cross` belongs to the position that predicts target token t.
    Column t of `decoder` stands for target token t - 1; column 0 is the start.

    Attributes:
        encoder: encoder self-attention, [B, H, S, S] for each layer.
        decoder: decoder self-attention, [B, H, T, T] for each layer.
        cross: cross-attention to the source, [B, H, T, S] for each layer.
    """

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


@serializable
class Transformer(keras.Model):
    """The encoder-decoder of "Attention Is All You Need", built at construction.

    Its parts come from the methods `make_...`: a subclass that overrides one of them is
    a model with another part.

    Args:
        hparams: the hyper-parameters.
        source_vocab_size: number of rows of the source embedding.
        target_vocab_size: number of rows of the target embedding; None when both sides
            share one vocabulary of `source_vocab_size` tokens.
        name: name of the Keras model.

    Attributes:
        embeddings: the matrices. One serves as source embedding, target embedding and
            softmax when the two sides share a vocabulary; two do with two vocabularies,
            and three when `share_embeddings` is off (3.4).
        source_embedding: the layer that embeds source ids.
        target_embedding: the layer that embeds target ids.
        softmax_embedding: the layer whose transposed matrix maps to logits.
        output_bias: the bias [V] of the logits, which a subclass may add in `build`.
    """

    def __init__(
        self,
        hparams: HParams,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        name: str = "transformer",
    ) -> None:
        mixed = hparams.compute_dtype != "float32"
        policy = f"mixed_{hparams.compute_dtype}" if mixed else "float32"
        super().__init__(name=name, dtype=policy)
        self.hparams = hparams
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size

        target_size = target_vocab_size or source_vocab_size
        if target_vocab_size is None and hparams.share_embeddings:
            self.embeddings = [self.make_embedding(source_vocab_size, "embedding")]
        else:
            self.embeddings = [
                self.make_embedding(source_vocab_size, "source_embedding"),
                self.make_embedding(target_size, "target_embedding"),
            ]
        self.source_embedding = self.embeddings[0]
        self.target_embedding = self.embeddings[-1]
        if not hparams.share_embeddings:
            self.embeddings.append(self.make_embedding(target_size, "softmax"))
        self.softmax_embedding = self.embeddings[-1]
        self.positions = self.make_positions()
        self.source_dropout = self._dropout("source_dropout")
        self.target_dropout = self._dropout("target_dropout")
        self.output_bias: keras.Variable | None = None

        def final_norm() -> keras.layers.Layer | None:
            return self.make_norm() if hparams.norm == "pre" else None

        encoder_layers = [
            self.make_encoder_layer(f"layer_{i}") for i in range(hparams.num_layers)
        ]
        self.encoder = Encoder(
            encoder_layers, final_norm(), name="encoder", dtype=policy
        )
        decoder_layers = [
            self.make_decoder_layer(f"layer_{i}") for i in range(hparams.decoder_layers)
        ]
        self.decoder = Decoder(
            decoder_layers, final_norm(), name="decoder", dtype=policy
        )
        self.build((None, None, hparams.d_model))

    def build(self, input_shape: Shape) -> None:
        """Creates all weights."""
        for layer in self._flatten_layers(include_self=False, recursive=False):
            layer.build(input_shape)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Lets Keras load saved models of the class without `custom_objects`."""
        super().__init_subclass__(**kwargs)
        package = cls.__module__.partition(".")[0]
        keras.saving.register_keras_serializable(package)(cls)

    # The parts, to be replaced by subclasses.

    def make_encoder_layer(self, name: str) -> EncoderLayer:
        """Returns an encoder layer, which maps [B, S, D] to [B, S, D] (3.1)."""
        return EncoderLayer(
            self.make_self_attention(causal=False),
            self.make_feed_forward(),
            self._residuals("self_attention", "feed_forward"),
            name=name,
            dtype=self.dtype_policy,
        )

    def make_decoder_layer(self, name: str) -> DecoderLayer:
        """Returns a decoder layer, which maps [B, T, D] to [B, T, D] (3.1)."""
        return DecoderLayer(
            self.make_self_attention(causal=True),
            self.make_cross_attention(),
            self.make_feed_forward(),
            self._residuals("self_attention", "cross_attention", "feed_forward"),
            name=name,
            dtype=self.dtype_policy,
        )

    def make_embedding(self, vocab_size: int, name: str) -> Embedding:
        """Returns a layer that embeds ids [...] as float32 [..., D] (3.4)."""
        d_model = self.hparams.d_model
        return Embedding(vocab_size, d_model, name=name, dtype=self.dtype_policy)

    def make_positions(self) -> Callable[[Tensor], Tensor]:
        """Returns a map of integer positions [T] to float32 encodings [T, D] (3.5)."""
        d_model = self.hparams.d_model
        if self.hparams.position == "learned":
            rows = self.hparams.max_positions
            return LearnedPositions(rows, d_model, name="positions", dtype="float32")
        return functools.partial(sinusoids, d_model=d_model)

    def make_self_attention(self, causal: bool) -> SelfAttention:
        """Returns a self-attention sub-layer (3.2).

        With `attention_window` = r, position i attends to positions j with
        |i - j| <= r / 2 in the encoder and i - r < j <= i in the decoder. A decoding
        step passes `SelfAttention.compute_attention` a cache. It comes from
        `empty_cache`, and has the methods of `SelfAttentionCache`: a layer whose cache
        is a state of each hypothesis [B, K, D] moves it in `reorder`.

        Args:
            causal: whether no position attends to later ones, as in the decoder.
        """
        if r := self.hparams.attention_window:
            before, after = (r - 1, 0) if causal else (r // 2, r // 2)
            return WindowSelfAttention(
                before=before, after=after, **self.attention_options("self_attention")
            )
        return SelfAttention(causal=causal, **self.attention_options("self_attention"))

    def make_cross_attention(self) -> CrossAttention:
        """Returns a sub-layer that attends to the encoded source (3.2.3)."""
        return CrossAttention(**self.attention_options("cross_attention"))

    def attention_options(self, name: str) -> dict[str, Any]:
        """Returns the arguments of both attention layers."""
        return {
            "d_model": self.hparams.d_model,
            "num_heads": self.hparams.num_heads,
            "key_size": self.hparams.key_size,
            "value_size": self.hparams.value_size,
            "score": self.hparams.attention,
            "dropout": self.hparams.attention_dropout,
            "name": name,
            "dtype": self.dtype_policy,
        }

    def make_feed_forward(self) -> FeedForward:
        """Returns a feed-forward network, which maps [B, T, D] to [B, T, D] (3.3)."""
        return FeedForward(
            self.hparams.d_model,
            self.hparams.d_ff,
            self.hparams.ffn_dropout,
            name="feed_forward",
            dtype=self.dtype_policy,
        )

    def make_norm(self) -> keras.layers.Layer:
        """Returns a normalization of float32 [B, T, D]."""
        return LayerNorm(self.hparams.d_model, name="norm")

    def make_residual(self, name: str) -> Residual:
        """Returns the residual connection around a sub-layer (3.1)."""
        dropout, norm_first = self.hparams.dropout, self.hparams.norm == "pre"
        return Residual(self.make_norm(), dropout, norm_first, name=name)

    def _residuals(self, *names: str) -> list[Residual]:
        return [self.make_residual(f"{name}_residual") for name in names]

    def _dropout(self, name: str) -> Dropout:
        return Dropout(self.hparams.dropout, name=name, dtype="float32")

    def call(
        self,
        source: Tensor | Sequence[Tensor] | Mapping[str, Tensor],
        target: Tensor | None = None,
        seed: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """Returns the logits of every target position by teacher forcing.

        Args:
            source: ids [B, S], padded with 0; or both arguments as a pair, or as
                {"source": ..., "target": ...}.
            target: ids [B, T], padded with 0; they are shifted here.
            seed: int32 [2], dropout seed, see `Dropout`.
            training: whether to draw dropout without a seed; read by `Dropout`.

        Returns:
            float32 logits [B, T, V].
        """
        if isinstance(source, Mapping):
            source, target = source["source"], source["target"]
        elif target is None:
            source, target = source
        states, _ = self.decoder_outputs(source, target, seed)
        return self.logits(states)

    def attention_maps(self, source: Tensor, target: Tensor) -> AttentionMaps:
        """Returns all attention weights without dropout (section 4, appendix)."""
        _, maps = self.decoder_outputs(source, target)

        def full(stack: _Stack, found: list[Tensor], ids: Tensor) -> list[Tensor]:
            return [
                attention.full_attention_scores(weights, ops.shape(ids)[1])
                if isinstance(attention := layer.self_attention, SelfAttention)
                else weights
                for layer, weights in zip(stack.layers, found, strict=True)
            ]

        return maps._replace(
            encoder=full(self.encoder, maps.encoder, source),
            decoder=full(self.decoder, maps.decoder, target),
        )

    def decoder_outputs(
        self, source: Tensor, target: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, AttentionMaps]:
        """Returns the decoder's output and all attention weights.

        The arguments are those of `call`.

        Returns:
            The decoder's output [B, T, D], and the attention weights; with
            `attention_window` those of self-attention are in blocks, see
            `WindowSelfAttention.compute_attention`.
        """
        shifted = ops.pad(target, ((0, 0), (1, 0)))[:, :-1]  # starts with PAD
        x, y = self._embed_both(source, shifted)
        x = self.source_dropout(self.source_input(x), seed=seed)
        y = y + self.positions(ops.arange(ops.shape(y)[1]))
        y = self.target_dropout(y, seed=seed)
        bias = padding_bias(source == PAD)
        scores = {"seed": seed, "return_attention_scores": True}
        encoder_output, encoder_maps = self.encoder(x, bias, **scores)
        bias = self.cross_attention_bias(bias, shifted)
        y, decoder_maps, cross_maps, _ = self.decoder(y, encoder_output, bias, **scores)
        return y, AttentionMaps(encoder_maps, decoder_maps, cross_maps)

    def logits(self, states: Tensor) -> Tensor:
        """Maps the decoder's output [..., D] to float32 logits [..., V]."""
        logits = self.softmax_embedding.logits(states)
        if self.output_bias is None:
            return logits
        return logits + ops.convert_to_tensor(self.output_bias)

    def source_input(self, x: Tensor) -> Tensor:
        """Returns the encoder's input [B, S, D], given the embeddings [B, S, D]."""
        return x + self.positions(ops.arange(ops.shape(x)[1]))

    def cross_attention_bias(self, bias: Tensor, shifted: Tensor) -> Tensor:
        """Returns the bias that is added to the cross-attention scores.

        `decode_step` does not call this method, so a subclass that overrides it must
        override `decode_step` to match.

        Args:
            bias: [B, 1, 1, S], masks the source's padding.
            shifted: ids [B, T], the target shifted right by one; the first is PAD.

        Returns:
            The bias, broadcastable to [B, H, T, S].
        """
        return bias

    def encode(self, source: Tensor) -> Tensor:
        """Encodes source ids [B, S] as [B, S, D]."""
        x = self.source_input(self.source_embedding(source))
        return self.encoder(x, padding_bias(source == PAD))

    def start_cache(
        self, encoder_output: Tensor, source: Tensor, num_beams: int | Tensor
    ) -> Cache:
        """Returns the cache for the first decoding step.

        Args:
            encoder_output: [B, S, D], from `encode`.
            source: ids [B, S], whose padding is masked.
            num_beams: number K of hypotheses for each sentence.
        """
        batch = ops.shape(encoder_output)[0]
        return Cache(
            positions=ops.zeros((batch, num_beams, 0)),
            bias=padding_bias(source == PAD),
            coverage=ops.zeros((batch, num_beams, 0)),
            matrices=tuple(layer.matrix() for layer in self._multiplied()),
            layers=tuple(
                layer.init_cross_cache(
                    encoder_output, layer.self_attention.empty_cache(batch, num_beams)
                )
                for layer in self.decoder.layers
            ),
        )

    def _multiplied(self) -> list[Linear | Embedding]:
        """Returns the layers by whose matrices a decoding step multiplies."""
        layers = self.decoder._flatten_layers()
        kernels = [layer for layer in layers if isinstance(layer, Linear)]
        return [*kernels, self.softmax_embedding]

    def decode_step(
        self, ids: Tensor, position: Tensor, cache: Cache
    ) -> tuple[Tensor, Cache]:
        """Extends every hypothesis by one position.

        Args:
            ids: [B, K], the tokens generated last; 0 at position 0.
            position: scalar, the position of the logits to return, from 0.
            cache: from `start_cache` or the previous step.

        Returns:
            float32 logits [B, K, V] and the cache for the next step.
        """
        batch, beams, _ = ops.shape(cache.positions)
        number = ops.cast(position, "float32")
        is_own = ops.arange(beams)[:, None] == ops.arange(beams)
        new = ops.broadcast_to(ops.where(is_own, number, -1.0), (batch, beams, beams))
        positions = ops.concatenate([cache.positions, new], axis=2)
        bias = ops.where(self._is_visible(positions, number), 0.0, MASKED)
        x = self.target_embedding(ids) + self.positions(ops.arange(1) + position)
        with using_matrices(self._multiplied(), cache.matrices):
            x, _, cross_attention_scores, after = self.decoder(
                x,
                bias=cache.bias,
                caches=cache.layers,
                self_bias=bias[:, None],
                return_attention_scores=True,
            )
            logits = self.logits(x)
        cache = cache._replace(positions=positions, layers=tuple(after))
        if cache.coverage.shape[2] != 0:
            mean = ops.mean(ops.cast(cross_attention_scores[-1], "float32"), axis=1)
            cache = cache._replace(coverage=cache.coverage + mean)
        return logits, cache

    def _is_visible(self, positions: Tensor, position: Tensor) -> Tensor:
        """Returns which `Cache.positions` a token at the given position attends to."""
        oldest = 0.0
        if window := self.hparams.attention_window:
            oldest = ops.maximum(position - (window - 1), 0.0)
        return positions >= oldest

    def reorder_cache(self, cache: Cache, parents: Tensor) -> Cache:
        """Returns the cache in which beam k continues beam `parents[b, k]`.

        Args:
            cache: from `decode_step`.
            parents: int32 [B, K], the beam that each beam continues.
        """
        batch, beams = ops.shape(parents)
        rows = parents + ops.arange(batch)[:, None] * beams

        def reordered(x: Tensor) -> Tensor:
            return ops.take(ops.reshape(x, (-1, ops.shape(x)[2])), rows, axis=0)

        layers = tuple(
            layer._replace(tokens=layer.tokens.reorder(parents))
            for layer in cache.layers
        )
        cache = cache._replace(positions=reordered(cache.positions), layers=layers)
        if cache.coverage.shape[2] != 0:
            cache = cache._replace(coverage=reordered(cache.coverage))
        return cache

    def select_rows(self, cache: Cache, rows: Tensor) -> Cache:
        """Returns the cache of some sentences, without tokens that are not needed.

        A token is needed if the next token of some hypothesis attends to it.

        Args:
            cache: from `start_cache` or `decode_step`.
            rows: int32 [R], the sentences; may repeat some.
        """
        positions = ops.take(cache.positions, rows, axis=0)
        next_position = ops.max(positions, initial=-1.0) + 1.0
        is_needed = ops.any(self._is_visible(positions, next_position), axis=1)
        counts = ops.sum(ops.cast(is_needed, "int32"), axis=1)
        _, columns = ops.top_k(ops.cast(is_needed, "float32"), ops.max(counts))
        layers = tuple(
            layer._replace(
                tokens=layer.tokens.select(rows, columns),
                cross_key=ops.take(layer.cross_key, rows, axis=0),
                cross_value=ops.take(layer.cross_value, rows, axis=0),
            )
            for layer in cache.layers
        )
        every = ops.arange(ops.shape(rows)[0])
        return cache._replace(
            positions=select_columns(positions, every, columns),
            bias=ops.take(cache.bias, rows, axis=0),
            coverage=ops.take(cache.coverage, rows, axis=0),
            layers=layers,
        )

    def track_coverage(self, cache: Cache, source: Tensor) -> Cache:
        """Returns the first cache, changed so that steps sum `Cache.coverage`.

        Args:
            cache: from `start_cache`.
            source: ids [B, S]; padding needs no attention, so its sum begins at 1.
        """
        beams = ops.shape(cache.positions)[1]
        padding = ops.cast(source == PAD, "float32")
        return cache._replace(coverage=ops.repeat(padding[:, None], beams, axis=1))

    def coverage(self, cache: Cache) -> Tensor:
        """Returns the total attention [B, K, S] that each source token got."""
        return cache.coverage

    def cache_shapes(self, cache: Cache) -> Cache:
        """Returns the shapes that hold for the cache at every step.

        An axis that is empty in the first cache is None: it grows at each step, and
        shrinks in `select_rows`.

        Args:
            cache: from `start_cache`.
        """
        shapes = keras.tree.map_structure(lambda x: tuple(x.shape), cache)
        growing = keras.tree.map_structure(
            lambda x: tuple(size or None for size in x.shape), cache.layers
        )
        return shapes._replace(positions=(None, None, None), layers=growing)

    def _embed_both(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Embeds [B, S] and [B, T], in one look-up if they share a matrix.

        The gradient of a shared matrix is then a sum of two terms, one from the
        embeddings and one from the logits. With three terms, the order of the additions
        would vary from run to run.
        """
        if self.source_embedding is not self.target_embedding:
            return self.source_embedding(source), self.target_embedding(target)
        rows = [ops.reshape(ids, (-1,)) for ids in (source, target)]
        vectors = self.source_embedding(ops.concatenate(rows))
        count = ops.shape(rows[0])[0]
        x = ops.reshape(vectors[:count], (*ops.shape(source), -1))
        return x, ops.reshape(vectors[count:], (*ops.shape(target), -1))

    def with_compute_dtype(self, dtype: str) -> Self:
        """Returns a model with the same weights that computes in another dtype."""
        config = self.get_config()
        config["hparams"]["compute_dtype"] = dtype
        model = type(self).from_config(config)
        model.set_weights(self.get_weights())
        return model

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, for Keras."""
        return {
            "hparams": dataclasses.asdict(self.hparams),
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: object = None) -> Self:
        """Returns the model that `get_config` describes."""
        return cls(**config | {"hparams": HParams.from_dict(config["hparams"])})
