"""The Transformer: encoder, decoder, and decoding step by step with a cache (3)."""

import dataclasses
from typing import Any, NamedTuple, Self

import keras
from keras import ops

from t2t_keras.hparam import HParams
from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers import (
    MASKED,
    AttentionKernels,
    CrossAttention,
    Dropout,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Residual,
    SelfAttention,
    SelfAttentionCache,
    TargetSpace,
    padding_bias,
    select_columns,
    sinusoids,
    sinusoids_in_halves,
    t2t_timing_signal,
)
from t2t_keras.model.window_attention import WindowSelfAttention

PAD = 0


class EncoderLayer(keras.layers.Layer):
    """Self-attention, then the feed-forward network, each with its residual (3.1)."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        dtype = self.dtype_policy
        self.self_attention = _self_attention(hparams, dtype, bidirectional=True)
        self.feed_forward = _feed_forward(hparams, dtype)
        self.self_attention_residual = _residual(hparams, self.self_attention)
        self.feed_forward_residual = _residual(hparams, self.feed_forward)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        self.self_attention.build(None)
        self.feed_forward.build(None)
        self.self_attention_residual.build(None)
        self.feed_forward_residual.build(None)

    def call(
        self, x: Tensor, bias: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Applies the layer.

        Args:
            x: [B, S, D]
            bias: [B, 1, 1, S], masks padding.
            seed: dropout seed; None at inference.

        Returns:
            The output [B, S, D], and the self-attention weights [B, H, S, S].
        """
        residual = self.self_attention_residual
        y, weights = self.self_attention(residual.enter(x), bias, seed=seed)
        x = residual.leave(x, y, seed)
        residual = self.feed_forward_residual
        y = self.feed_forward(residual.enter(x), seed=seed)
        return residual.leave(x, y, seed), weights


class LayerCache(NamedTuple):
    """What a decoder layer keeps between decoding steps.

    Attributes:
        tokens: the self-attention's keys and values of the tokens so far.
        cross_key: [B, H, S, d_k], the source's keys, the same for all beams.
        cross_value: [B, H, S, d_v], the source's values.
        self_kernels: the self-attention's kernels, cast once for all steps.
        cross_kernels: the cross-attention's kernels, cast likewise.
        inner_kernel: [D, F], the feed-forward network's first kernel, cast likewise.
        outer_kernel: [F, D], its second kernel, cast likewise.
    """

    tokens: SelfAttentionCache
    cross_key: Tensor
    cross_value: Tensor
    self_kernels: AttentionKernels
    cross_kernels: AttentionKernels
    inner_kernel: Tensor
    outer_kernel: Tensor


class Cache(NamedTuple):
    """What the model keeps between decoding steps.

    The hypotheses of a sentence often share their first tokens. So the tokens of all of
    them form one list, with C columns, and `positions` says which of them each
    hypothesis consists of: when a hypothesis continues another, keys and values stay
    where they are.

    Attributes:
        positions: [B, K, C] float32, the position of the token in column c if it is in
            hypothesis k, otherwise -1. (A GPU compares integers in the host's memory.)
        bias: [B, 1, 1, S], masks the source's padding.
        coverage: [B, K, S] float32, the cross-attention weights of the last layer, the
            mean of its heads, summed over the steps; [B, K, 0] unless tracked.
        table: the result of `Embedding.cast_table`, for all steps.
        layers: the cache of each decoder layer.
    """

    positions: Tensor
    bias: Tensor
    coverage: Tensor
    table: Tensor
    layers: tuple[LayerCache, ...]


class DecoderLayer(keras.layers.Layer):
    """Masked self-attention, cross-attention, feed-forward network (3.1)."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        dtype = self.dtype_policy
        self.self_attention = _self_attention(hparams, dtype, bidirectional=False)
        self.cross_attention = CrossAttention(
            *_attention_sizes(hparams),
            hparams.attention,
            hparams.attention_dropout,
            hparams.attention_bias,
            name="cross_attention",
            dtype=dtype,
        )
        self.feed_forward = _feed_forward(hparams, dtype)
        self.self_attention_residual = _residual(hparams, self.self_attention)
        self.cross_attention_residual = _residual(hparams, self.cross_attention)
        self.feed_forward_residual = _residual(hparams, self.feed_forward)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        self.self_attention.build(None)
        self.cross_attention.build(None)
        self.feed_forward.build(None)
        self.self_attention_residual.build(None)
        self.cross_attention_residual.build(None)
        self.feed_forward_residual.build(None)

    def call(
        self, x: Tensor, memory: Tensor, bias: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Applies the layer to all positions at once, with causal masking.

        Args:
            x: [B, T, D]
            memory: the encoder's output, [B, S, D].
            bias: [B, 1, 1, S], masks the source's padding.
            seed: dropout seed; None at inference.

        Returns:
            The output [B, T, D], the self-attention weights [B, H, T, T], and the
            cross-attention weights [B, H, T, S].
        """
        causal = self.self_attention.causal_bias(ops.shape(x)[1])
        key, value = self.cross_attention.project_memory(memory)
        residual = self.self_attention_residual
        y, to_past = self.self_attention(residual.enter(x), causal, seed=seed)
        x = residual.leave(x, y, seed)
        residual = self.cross_attention_residual
        y, to_source = self.cross_attention(
            residual.enter(x), key, value, bias, seed=seed
        )
        x = residual.leave(x, y, seed)
        residual = self.feed_forward_residual
        y = self.feed_forward(residual.enter(x), seed=seed)
        return residual.leave(x, y, seed), to_past, to_source

    def step(
        self, x: Tensor, self_bias: Tensor, cross_bias: Tensor, cache: LayerCache
    ) -> tuple[Tensor, LayerCache, Tensor]:
        """Applies the layer to one new token of every hypothesis.

        The K hypotheses of a sentence take the place of positions: all of them attend
        to one list of tokens, and to the same source.

        Args:
            x: [B, K, D]
            self_bias: [B, 1, K, C + K], masks the tokens of other hypotheses.
            cross_bias: [B, 1, 1, S], masks the source's padding.
            cache: holds C tokens.

        Returns:
            The output [B, K, D], the cache with the new tokens, and the
            cross-attention weights [B, H, K, S].
        """
        residual = self.self_attention_residual
        y, tokens = self.self_attention.step(
            residual.enter(x), self_bias, cache.tokens, cache.self_kernels
        )
        x = residual.leave(x, y)
        residual = self.cross_attention_residual
        y, to_source = self.cross_attention(
            residual.enter(x),
            cache.cross_key,
            cache.cross_value,
            cross_bias,
            kernels=cache.cross_kernels,
        )
        x = residual.leave(x, y)
        residual = self.feed_forward_residual
        y = self.feed_forward(
            residual.enter(x), kernels=(cache.inner_kernel, cache.outer_kernel)
        )
        return residual.leave(x, y), cache._replace(tokens=tokens), to_source

    def start_cache(self, memory: Tensor) -> LayerCache:
        """Returns the cache before the first step: the source's keys and values."""
        key, value = self.cross_attention.project_memory(memory)
        return LayerCache(
            tokens=self.self_attention.empty_cache(ops.shape(memory)[0]),
            cross_key=key,
            cross_value=value,
            self_kernels=self.self_attention.cast_kernels(),
            cross_kernels=self.cross_attention.cast_kernels(),
            inner_kernel=self.feed_forward.inner.cast_kernel(),
            outer_kernel=self.feed_forward.outer.cast_kernel(),
        )


def _attention_sizes(hparams: HParams) -> tuple[int, int, int, int]:
    return hparams.d_model, hparams.num_heads, hparams.key_size, hparams.value_size


def _self_attention(
    hparams: HParams, dtype: keras.DTypePolicy, bidirectional: bool
) -> SelfAttention:
    """Returns a self-attention sub-layer.

    Args:
        hparams: sizes and kind of attention. With `attention_window` = r, position i
            attends to positions j with |i - j| <= r / 2 in the encoder and
            i - r < j <= i in the decoder.
        dtype: the layer's dtype policy.
        bidirectional: whether a position attends to later ones, as in the encoder.
    """
    kwargs: dict[str, Any] = {
        "score": hparams.attention,
        "dropout": hparams.attention_dropout,
        "use_bias": hparams.attention_bias,
        "name": "self_attention",
        "dtype": dtype,
    }
    window = hparams.attention_window
    if not window:
        return SelfAttention(*_attention_sizes(hparams), **kwargs)
    before, after = (window // 2, window // 2) if bidirectional else (window - 1, 0)
    return WindowSelfAttention(
        *_attention_sizes(hparams), before=before, after=after, **kwargs
    )


def _feed_forward(hparams: HParams, dtype: keras.DTypePolicy) -> FeedForward:
    return FeedForward(
        hparams.d_model,
        hparams.d_ff,
        hparams.ffn_dropout,
        hparams.activation,
        name="feed_forward",
        dtype=dtype,
    )


def _residual(hparams: HParams, sublayer: keras.layers.Layer) -> Residual:
    """Returns the residual connection around a sub-layer."""
    return Residual(
        hparams.d_model,
        hparams.dropout,
        hparams.norm,
        hparams.norm_epsilon,
        name=f"{sublayer.name}_residual",
    )


class _Stack(keras.layers.Layer):
    """A stack of N equal layers; with norm "pre", a layer normalization follows it."""

    def __init__(
        self,
        kind: type[keras.layers.Layer],
        num_layers: int,
        hparams: HParams,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.layers = [
            kind(hparams, name=f"layer_{i}", dtype=self.dtype_policy)
            for i in range(num_layers)
        ]
        self.norm = None
        if hparams.norm == "pre":
            self.norm = LayerNorm(hparams.d_model, hparams.norm_epsilon, name="norm")

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        for layer in self.layers:
            layer.build(None)
        if self.norm:
            self.norm.build(None)

    def finish(self, x: Tensor) -> Tensor:
        """Returns the output of the stack, given the output of its last layer."""
        return self.norm(x) if self.norm else x


class Encoder(_Stack):
    """A stack of N encoder layers."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(EncoderLayer, hparams.num_layers, hparams, **kwargs)

    def call(
        self, x: Tensor, bias: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Encodes; arguments are those of `EncoderLayer.call`.

        Returns:
            The memory [B, S, D], and the attention weights [B, H, S, S] of each layer.
        """
        maps = []
        for layer in self.layers:
            x, weights = layer(x, bias, seed=seed)
            maps.append(weights)
        return self.finish(x), maps


class Decoder(_Stack):
    """A stack of N decoder layers."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(DecoderLayer, hparams.decoder_layers, hparams, **kwargs)

    def call(
        self, x: Tensor, memory: Tensor, bias: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Decodes all positions at once; arguments are those of `DecoderLayer.call`.

        Returns:
            The output [B, T, D], and each layer's self-attention weights [B, H, T, T]
            and cross-attention weights [B, H, T, S].
        """
        self_maps, cross_maps = [], []
        for layer in self.layers:
            x, to_past, to_source = layer(x, memory, bias, seed=seed)
            self_maps.append(to_past)
            cross_maps.append(to_source)
        return self.finish(x), self_maps, cross_maps

    def step(
        self,
        x: Tensor,
        self_bias: Tensor,
        cross_bias: Tensor,
        caches: tuple[LayerCache, ...],
    ) -> tuple[Tensor, tuple[LayerCache, ...], Tensor]:
        """Decodes one new token of every hypothesis.

        The arguments and results are those of `DecoderLayer.step`; the cross-attention
        weights are the last layer's.
        """
        longer = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache, to_source = layer.step(x, self_bias, cross_bias, cache)
            longer.append(cache)
        return self.finish(x), tuple(longer), to_source


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


class Transformer(keras.Model):
    """The encoder-decoder of "Attention Is All You Need", built at construction.

    Args:
        hparams: the hyper-parameters.
        source_vocab_size: number of rows of the source embedding.
        target_vocab_size: number of rows of the target embedding; None when both sides
            share one vocabulary of `source_vocab_size` tokens.
        name: name of the Keras model.
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

        def embedding(size: int, name: str) -> Embedding:
            return Embedding(size, hparams.d_model, name=name, dtype=policy)

        one_vocabulary = target_vocab_size is None
        target_size = target_vocab_size or source_vocab_size
        if one_vocabulary and hparams.share_embeddings:
            self.embeddings = [embedding(source_vocab_size, "embedding")]
        else:
            self.embeddings = [
                embedding(source_vocab_size, "source_embedding"),
                embedding(target_size, "target_embedding"),
            ]
        if not hparams.share_embeddings:
            self.embeddings.append(embedding(target_size, "softmax"))

        self.positions = (
            LearnedPositions(hparams.max_positions, hparams.d_model, name="positions")
            if hparams.position == "learned"
            else None
        )
        self.target_space = (
            TargetSpace(hparams.d_model, name="target_space")
            if hparams.target_space
            else None
        )
        self.source_dropout = Dropout(hparams.dropout, name="source_dropout")
        self.target_dropout = Dropout(hparams.dropout, name="target_dropout")
        self.output_bias: keras.Variable | None = None
        self.encoder = Encoder(hparams, name="encoder", dtype=policy)
        self.decoder = Decoder(hparams, name="decoder", dtype=policy)
        self.build(None)

    def build(self, input_shape: object = None) -> None:
        """Creates all weights."""
        layer: keras.layers.Layer
        for layer in (
            *self.embeddings,
            *filter(None, (self.positions, self.target_space)),
            self.source_dropout,
            self.target_dropout,
            self.encoder,
            self.decoder,
        ):
            layer.build(None)
        if self.hparams.output_bias:
            self.output_bias = self.add_weight(
                name="output_bias",
                shape=(self.softmax_embedding.vocab_size,),
                initializer="zeros",
                autocast=False,
            )

    # One matrix serves as source embedding, target embedding and softmax when the two
    # sides share a vocabulary; two matrices do with two vocabularies, and three when
    # `share_embeddings` is off (3.4).

    @property
    def source_embedding(self) -> Embedding:
        """The layer that embeds source ids."""
        return self.embeddings[0]

    @property
    def target_embedding(self) -> Embedding:
        """The layer that embeds target ids."""
        return self.embeddings[min(1, len(self.embeddings) - 1)]

    @property
    def softmax_embedding(self) -> Embedding:
        """The layer whose transposed matrix maps to logits."""
        return self.embeddings[-1]

    def call(
        self, source: Tensor, target: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """Returns the logits of every target position by teacher forcing.

        Args:
            source: ids [B, S], padded with 0.
            target: ids [B, T], padded with 0; they are shifted here.
            seed: int32 [2], dropout seed; None at inference.

        Returns:
            float32 logits [B, T, V].
        """
        states, _ = self.states(source, target, seed)
        return self.logits(states)

    def attention_maps(self, source: Tensor, target: Tensor) -> AttentionMaps:
        """Returns all attention weights without dropout (section 4, appendix)."""
        _, maps = self.states(source, target)
        if not self.hparams.attention_window:
            return maps

        def full(stack: _Stack, blocks: list[Tensor], ids: Tensor) -> list[Tensor]:
            length = ops.shape(ids)[1]
            return [
                layer.self_attention.full_weights(weights, length)
                for layer, weights in zip(stack.layers, blocks, strict=True)
            ]

        return maps._replace(
            encoder=full(self.encoder, maps.encoder, source),
            decoder=full(self.decoder, maps.decoder, target),
        )

    def states(
        self, source: Tensor, target: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, AttentionMaps]:
        """Returns the decoder's output and all attention weights.

        The arguments are those of `call`.

        Returns:
            The decoder's output [B, T, D], and the attention weights; with
            `attention_window` those of self-attention are in blocks, see
            `WindowSelfAttention.call`.
        """
        shifted = ops.pad(target, ((0, 0), (1, 0)))[:, :-1]  # starts with PAD
        x, y = self._embed_both(source, shifted)
        x = self._in_target_space(x)
        bias = padding_bias(source == PAD)
        x = self.source_dropout(x, seed=seed)
        memory, encoder_maps = self.encoder(x, bias, seed=seed)
        y = self.target_dropout(y, seed=seed)
        y, decoder_maps, cross_maps = self.decoder(y, memory, bias, seed=seed)
        return y, AttentionMaps(encoder_maps, decoder_maps, cross_maps)

    def logits(self, states: Tensor, table: Tensor | None = None) -> Tensor:
        """Maps the decoder's output [..., D] to float32 logits [..., V].

        Args:
            states: [..., D]
            table: the softmax matrix in the compute dtype; None: cast it now.
        """
        logits = self.softmax_embedding.logits(states, table)
        if self.output_bias is None:
            return logits
        return logits + ops.convert_to_tensor(self.output_bias)

    def encode(self, source: Tensor) -> Tensor:
        """Encodes source ids [B, S] to the memory [B, S, D]."""
        x = self._in_target_space(self._embed(self.source_embedding, source, 0))
        memory, _ = self.encoder(x, padding_bias(source == PAD))
        return memory

    def start_cache(
        self, memory: Tensor, source: Tensor, num_beams: int | Tensor
    ) -> Cache:
        """Returns the cache for the first decoding step.

        Args:
            memory: [B, S, D], from `encode`.
            source: ids [B, S], whose padding is masked.
            num_beams: number K of hypotheses for each sentence.
        """
        batch = ops.shape(memory)[0]
        return Cache(
            positions=ops.zeros((batch, num_beams, 0)),
            bias=padding_bias(source == PAD),
            coverage=ops.zeros((batch, num_beams, 0)),
            table=self.softmax_embedding.cast_table(),
            layers=tuple(layer.start_cache(memory) for layer in self.decoder.layers),
        )

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
        x = self._embed(self.target_embedding, ids, position, axis=0)
        x, layers, to_source = self.decoder.step(
            x, bias[:, None], cache.bias, cache.layers
        )
        cache = cache._replace(positions=positions, layers=layers)
        if cache.coverage.shape[2] != 0:
            mean = ops.mean(ops.cast(to_source, "float32"), axis=1)
            cache = cache._replace(coverage=cache.coverage + mean)
        return self.logits(x, cache.table), cache

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

        cache = cache._replace(positions=reordered(cache.positions))
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

        The axis of the tokens is None: it grows at each step, and shrinks in
        `select_rows`.
        """

        def without_length(x: Tensor) -> tuple[int | None, ...]:
            batch, axis, _, *rest = x.shape
            return batch, axis, None, *rest

        shapes = keras.tree.map_structure(lambda x: tuple(x.shape), cache)
        layers = tuple(
            shape._replace(
                tokens=keras.tree.map_structure(without_length, layer.tokens)
            )
            for shape, layer in zip(shapes.layers, cache.layers, strict=True)
        )
        return shapes._replace(positions=(None, None, None), layers=layers)

    def _embed_both(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Embeds [B, S] and [B, T], in one look-up if they share a matrix.

        The gradient of a shared matrix is then a sum of two terms, one from the
        embeddings and one from the logits. With three terms, the order of the additions
        would vary from run to run.
        """
        if self.source_embedding is not self.target_embedding:
            x = self._embed(self.source_embedding, source, 0)
            return x, self._embed(self.target_embedding, target, 0)
        rows = [ops.reshape(ids, (-1,)) for ids in (source, target)]
        vectors = self.source_embedding(ops.concatenate(rows))
        count = ops.shape(rows[0])[0]
        x = ops.reshape(vectors[:count], (*ops.shape(source), -1))
        y = ops.reshape(vectors[count:], (*ops.shape(target), -1))
        return self._add_positions(x, 0), self._add_positions(y, 0)

    def _embed(
        self, embedding: Embedding, ids: Tensor, start: int | Tensor, axis: int = 1
    ) -> Tensor:
        """Embeds ids and adds the encodings of positions from `start` on."""
        return self._add_positions(embedding(ids), start, axis)

    def _in_target_space(self, x: Tensor) -> Tensor:
        """Adds the vector of `HParams.target_space` to the sources' [B, S, D]."""
        return self.target_space(x) if self.target_space else x

    def _add_positions(self, x: Tensor, start: int | Tensor, axis: int = 1) -> Tensor:
        """Adds to [B, T, D] the encodings of positions from `start` on."""
        count = ops.shape(x)[1] if axis == 1 else 1
        positions = ops.arange(count) + start
        return x + ops.cast(self.position_encodings(positions), "float32")

    def position_encodings(self, positions: Tensor) -> Tensor:
        """Returns the encodings [T, D] of positions [T], which are integers."""
        if self.positions:
            return self.positions(positions)
        if self.hparams.position == "t2t":
            return t2t_timing_signal(positions, self.hparams.d_model)
        if self.hparams.position == "halves":
            return sinusoids_in_halves(positions, self.hparams.d_model)
        return sinusoids(positions, self.hparams.d_model)

    def with_compute_dtype(self, dtype: str) -> Self:
        """Returns a model with the same weights that computes in another dtype."""
        return self.with_hparams(compute_dtype=dtype)

    def with_hparams(self, **changes: Any) -> Self:
        """Returns a model with the same weights and other hyper-parameters.

        Args:
            **changes: hyper-parameters on which no weight depends.
        """
        config = self.get_config()
        config["hparams"] |= changes
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
