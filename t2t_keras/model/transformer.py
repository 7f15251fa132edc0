"""The Transformer (3): teacher forcing, and decoding step by step with a cache."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.entry_points import load_plugin
from t2t_keras.errors import UserError
from t2t_keras.hparam import GUIDED_HEAD
from t2t_keras.model.backend import (
    Stack,
    Tensor,
    arange,
    inner_layers,
    set_mask,
    to_ids,
)
from t2t_keras.model.decoder import DecoderBias
from t2t_keras.model.execution import from_rows, to_rows
from t2t_keras.model.layers.attention import SelfAttention
from t2t_keras.model.layers.cache import DecodingCache
from t2t_keras.model.layers.dropout import (
    DropoutKeys,
    row_keys,
    token_keys,
    training_seed,
)
from t2t_keras.model.layers.linear import Kernels, Linear
from t2t_keras.model.layers.masks import MASKED, PAD, Packing, padding_bias
from t2t_keras.model.loss import alignment_loss, expand_weights, output_losses
from t2t_keras.model.parts import TransformerParts


class AttentionMaps(NamedTuple):
    """The attention weights of a model, one tensor per layer; every row sums to 1.

    Row t of `decoder` and `cross` belongs to the position that predicts target token t.
    Column t of `decoder` stands for target token t - 1; column 0 is the start.
    """

    encoder: list[Tensor]  # [B, H, S, S], self-attention
    decoder: list[Tensor]  # [B, H, T, T], self-attention
    cross: list[Tensor]  # [B, H, T, S]


class Transformer(TransformerParts):
    """The encoder-decoder of "Attention Is All You Need", built at construction.

    Its parts come from the methods `make_...` of `TransformerParts`.

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
        preprocessor: the `decoding.generation.Preprocessor` with which `generate`
            takes texts; None: it takes ids only. It is not saved with the model.
    """

    _generator: Any = None  # see `generate`

    def call(
        self,
        source: Tensor | Sequence[Tensor] | Mapping[str, Tensor],
        target: Tensor | None = None,
        seed: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """Returns the logits [B, T, V], float32, by teacher forcing.

        Their mask leaves the target's padding out of Keras's losses and metrics.

        Args:
            source: ids [B, S], padded with 0; or both arguments as a pair, or as
                {"source": ..., "target": ...}. Ids may be floats.
            target: ids [B, T], padded with 0; they are shifted here.
            seed: integers [2], dropout seed, see `Dropout`.
            training: whether to draw dropout without a seed, see `Dropout.call`.
        """
        if target is None:
            source, target = _source_and_target(source)
        target = to_ids(target)
        seed = training_seed(self, seed, training)
        x, _ = self.decoder_outputs(to_ids(source), target, seed)
        logits = self.logits(x)
        set_mask(logits, ops.not_equal(target, PAD))
        return logits

    def compute_metrics(
        self,
        x: Sequence[Tensor] | Mapping[str, Tensor],
        y: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Returns the metrics of `compile`, in which padding does not count.

        Args:
            x: ids [B, S] and [B, T], as a pair or mapping, see `call`.
            y: ids [B, T].
            y_pred: logits [B, T, V].
            sample_weight: [B], [B, 1] or [B, T], of `weighted_metrics`; None: 1.
        """
        # `fit` on JAX loses the mask.
        set_mask(y_pred, ops.not_equal(_source_and_target(x)[1], PAD))
        weights = expand_weights(sample_weight, 2)
        return super().compute_metrics(x, y, y_pred, weights)

    def decoder_outputs(
        self,
        source: Tensor,
        target: Tensor,
        seed: Tensor | None = None,
        packing: Packing | None = None,
        first_row: int | Tensor = 0,
    ) -> tuple[Tensor, AttentionMaps]:
        """Returns the decoder's output [B, T, D] and all attention weights.

        Those of `WindowSelfAttention` are in blocks, see its `compute_attention`.

        Args:
            source: ids [B, S], padded with 0.
            target: ids [B, T], padded with 0.
            seed: integers [2], dropout seed, see `Dropout`.
            packing: where the pairs lie; None: every row has one pair.
            first_row: without a packing, the number of the first row in the step's
                whole batch, on which dropout depends.
        """
        start = ops.zeros_like(target[:, :1])  # PAD; a GPU cannot pad int64
        shifted = ops.concatenate([start, target[:, :-1]], axis=1)  # [B, T]
        if packing is None:
            source_keys, target_keys = _row_keys(source, target, seed, first_row)
            source_bias = padding_bias(source == PAD)  # [B, 1, 1, S]
            target_bias = None
            cross_bias = self.cross_attention_bias(source_bias, shifted)
        else:
            source_keys, target_keys = _packed_keys(packing, seed)
            shifted = ops.where(packing.is_first(), PAD, shifted)
            source_bias = packing.source_bias()  # [B, 1, S, S]
            target_bias = packing.target_bias()  # [B, 1, T, T]
            cross_bias = packing.cross_attention_bias()  # [B, 1, T, S]
            cross_bias = self.cross_attention_bias(cross_bias, shifted, packing)
        x, y = self._embed(source, shifted)  # [B, S, D], [B, T, D]
        if packing is None:
            x = self.source_input(x)
            y = y + self.positions(arange(ops.shape(y)[1]))
        else:
            x = self.source_input(x, packing.source_positions)
            y = y + self.positions(packing.target_positions)
        x = self.source_dropout(x, seed=source_keys)
        y = self.target_dropout(y, seed=target_keys)
        encoded = self.encoder.encode(x, source_bias, source_keys)
        caches = self.decoder.init_cross_caches(encoded.output)
        bias = DecoderBias(target_bias, cross_bias)
        decoded = self.decoder.decode(y, caches, bias, target_keys)
        maps = AttentionMaps(
            encoder=encoded.self_attention_scores,
            decoder=decoded.self_attention_scores,
            cross=decoded.cross_attention_scores,
        )
        return decoded.output, maps

    def training_losses(
        self,
        source: Tensor,
        target: Tensor,
        seed: Tensor | None,
        *,
        softmax: Tensor | None = None,
        alignment: Tensor | None = None,
        packing: Packing | None = None,
        first_row: int | Tensor = 0,
    ) -> tuple[Tensor, Tensor]:
        """Returns the loss that training minimizes, and the negative log-likelihood.

        Both are sums over the target's tokens, `summed_cross_entropies` of the logits.
        The negative log-likelihood has no gradient. Guided alignment changes the
        gradient but not the value of the loss, which stays comparable. A subclass that
        overrides this method trains with another loss.

        Args:
            source: int32 [B, S]
            target: int32 [B, T]
            seed: [2], of dropout.
            softmax: the softmax matrix [V, D], if its gradient is needed apart from the
                embedding's; None: the model's.
            alignment: [B, T, S], see `alignment_loss`; None: without guided alignment.
            packing: see `decoder_outputs`.
            first_row: likewise.
        """
        decoded, maps = self.decoder_outputs(source, target, seed, packing, first_row)
        rows = to_rows(decoded)  # [B T, D]
        labels = to_rows(target)  # [B T]
        table = self.softmax_embedding.table  # [V, D]
        # The look-up precedes the reshape, whose gradient would be dense.
        label_rows = ops.take(table, labels, axis=0)  # [B T, D]
        # A custom gradient refuses variables.
        table = ops.reshape(table, table.shape)
        softmax = table if softmax is None else softmax
        if self.output_bias is not None:
            # The bias is one more column, which multiplies a 1 at the end of each row.
            bias = ops.expand_dims(ops.convert_to_tensor(self.output_bias), 1)  # [V, 1]
            softmax = ops.concatenate([softmax, bias], axis=1)  # [V, D + 1]
            rows = ops.concatenate([rows, ops.ones_like(rows[:, :1])], axis=1)
            label_bias = ops.take(bias, labels, axis=0)  # [B T, 1]
            label_rows = ops.concatenate([label_rows, label_bias], axis=1)
        loss, nll = output_losses(
            rows,
            softmax,
            label_rows,
            labels,
            ops.cast(ops.not_equal(labels, PAD), "float32"),
            self.hparams.label_smoothing,
            self.compute_dtype,
        )
        if alignment is not None:
            layer_scores = maps.cross[self.hparams.alignment_layer - 1]  # [B, H, T, S]
            head = layer_scores[:, GUIDED_HEAD - 1]  # [B, T, S]
            guide = self.hparams.guided_alignment * alignment_loss(head, alignment)
            # This adds the gradient and leaves the value.
            loss += guide - ops.stop_gradient(guide)
        return loss, nll

    def _embed(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Embeds [B, S] and [B, T], in one look-up if they share a matrix.

        The gradient of a shared matrix is then a sum of two terms, one from the
        embeddings and one from the logits. With three terms, the order of the additions
        would vary from run to run.
        """
        if self.source_embedding is not self.target_embedding:
            return self.source_embedding(source), self.target_embedding(target)
        rows = [to_rows(ids) for ids in (source, target)]  # [B S], [B T]
        vectors = self.source_embedding(ops.concatenate(rows))  # [B (S + T), D]
        count = ops.shape(rows[0])[0]
        x = from_rows(vectors[:count], *ops.shape(source))  # [B, S, D]
        y = from_rows(vectors[count:], *ops.shape(target))  # [B, T, D]
        return x, y

    def source_input(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Returns the encoder's input [B, S, D], given the embeddings [B, S, D].

        The positions [B, S] are for packed rows; None: each row has one pair.
        """
        if positions is None:
            positions = arange(ops.shape(x)[1])
        return x + self.positions(positions)

    def cross_attention_bias(
        self, bias: Tensor, shifted: Tensor, packing: Packing | None = None
    ) -> Tensor:
        """Returns the bias of the cross-attention, broadcastable to [B, H, T, S].

        `decode_step` does not call this method, so a subclass that overrides it must
        override `decode_step` to match.

        Args:
            bias: [B, 1, 1, S], masks the source's padding; in packed rows [B, 1, T, S],
                masks other segments.
            shifted: ids [B, T], the target shifted right by one; the first is PAD, and
                in packed rows the first of each segment.
            packing: of packed rows, else None.
        """
        return bias

    def logits(self, x: Tensor, kernels: Kernels | None = None) -> Tensor:
        """Maps the decoder's output [..., D] to float32 logits [..., V]."""
        logits = self.softmax_embedding.logits(x, kernels)
        if self.output_bias is None:
            return logits
        return logits + ops.convert_to_tensor(self.output_bias)

    def attention_maps(self, source: Tensor, target: Tensor) -> AttentionMaps:
        """Returns all attention weights without dropout (section 4, appendix)."""
        _, maps = self.decoder_outputs(source, target)
        return maps._replace(
            encoder=_full_scores(self.encoder, maps.encoder, ops.shape(source)[1]),
            decoder=_full_scores(self.decoder, maps.decoder, ops.shape(target)[1]),
        )

    def generate(
        self, sources: str | Sequence[str] | Tensor, **options: object
    ) -> str | list[str] | Tensor:
        """Returns the best output of beam search for each source.

        It is what a `decoding.translator.Translator` of the model returns. It needs
        TensorFlow. The first call traces a graph, which later calls use with whatever
        weights the model then has.

        Args:
            sources: texts, one text, or ids [B, S] as in `call`, which may also be
                rows of different lengths.
            **options: see `decoding.options.DecodingOptions`.

        Returns:
            Texts for texts, a text for one text, and ids [B, T], padded with 0, for
            ids. A row ends in 1 (EOS) unless it reached its limit.

        Raises:
            UserError: the model has no `preprocessor` for texts, or one with other
                vocabularies; an option or a source is impossible; or Keras does not
                run on TensorFlow.
        """
        generator = self._generator
        if generator is None or generator.preprocessor is not self.preprocessor:
            backend = keras.backend.backend()
            make_generator = load_plugin("generators", backend)
            if make_generator is None:
                raise UserError(
                    f"generate needs TensorFlow, and Keras runs on {backend}: set "
                    "KERAS_BACKEND=tensorflow"
                )
            generator = self._generator = make_generator(self)
        return generator(sources, **options)

    # The methods below decode step by step.

    def encode(self, source: Tensor) -> Tensor:
        """Encodes source ids [B, S] as [B, S, D]."""
        x = self.source_input(self.source_embedding(source))  # [B, S, D]
        return self.encoder.encode(x, padding_bias(source == PAD)).output

    def start_cache(
        self, encoder_output: Tensor, source: Tensor, num_beams: int | Tensor
    ) -> DecodingCache:
        """Returns the cache for the first decoding step of K hypotheses per sentence.

        Args:
            encoder_output: [B, S, D], from `encode`.
            source: ids [B, S], whose padding is masked.
            num_beams: K
        """
        batch = ops.shape(encoder_output)[0]
        softmax = self.softmax_embedding
        kernels = {softmax.path: softmax.cast_kernel()}
        for layer in inner_layers(self.decoder):
            if isinstance(layer, Linear):
                kernels.update(layer.cast_weights())
        layer_caches = []
        for layer in self.decoder.layers:
            tokens = layer.self_attention.empty_cache(batch, num_beams)
            layer_caches.append(layer.init_cross_cache(encoder_output, tokens))
        return DecodingCache(
            positions=ops.zeros((batch, num_beams, 0), "float32"),
            bias=padding_bias(source == PAD),  # [B, 1, 1, S]
            coverage=ops.zeros((batch, num_beams, 0), "float32"),
            kernels=kernels,
            layers=tuple(layer_caches),
        )

    def decode_step(
        self, ids: Tensor, position: Tensor, cache: DecodingCache
    ) -> tuple[Tensor, DecodingCache]:
        """Returns float32 logits [B, K, V] and the cache for the next step.

        Args:
            ids: [B, K], the tokens generated last; 0 at position 0.
            position: scalar, the position of the logits to return, from 0.
            cache: from `start_cache` or the previous step.
        """
        batch, beams, _ = ops.shape(cache.positions)
        current = ops.cast(position, "float32")
        is_same_beam = arange(beams)[:, None] == arange(beams)  # [K, K]
        new = ops.where(is_same_beam, current, -1.0)  # [K, K]
        new = ops.broadcast_to(new, (batch, beams, beams))  # [B, K, K]
        appended = cache.append(new)  # [B, K, C + K]
        is_visible = appended.positions >= self._oldest_visible(current)
        bias = DecoderBias(
            self_attention=ops.where(is_visible, 0.0, MASKED)[:, None],
            cross_attention=cache.bias,
        )
        x = self.target_embedding(ids)  # [B, K, D]
        x = x + self.positions(arange(1) + position)
        decoded = self.decoder.decode(x, cache.layers, bias, kernels=cache.kernels)
        logits = self.logits(decoded.output, cache.kernels)
        cache = appended._replace(layers=tuple(decoded.caches))
        if cache.coverage.shape[2] != 0:
            scores = ops.cast(decoded.cross_attention_scores[-1], "float32")
            mean = ops.mean(scores, axis=1)  # [B, K, S]
            cache = cache._replace(coverage=cache.coverage + mean)
        return logits, cache

    def _oldest_visible(self, position: Tensor) -> Tensor:
        """Returns the lowest position that a token at the given one attends to."""
        if window := self.hparams.attention_window:
            return ops.maximum(position - (window - 1), 0.0)
        return 0.0

    def reorder_cache(self, cache: DecodingCache, parents: Tensor) -> DecodingCache:
        """Returns the cache in which beam k continues beam `parents[b, k]`, [B, K]."""
        return cache.reorder(parents)

    def select_rows(self, cache: DecodingCache, rows: Tensor) -> DecodingCache:
        """Returns the cache of the sentences `rows`, int32 [R], which may repeat some.

        Tokens to which no next token would attend are dropped.
        """
        positions = ops.take(cache.positions, rows, axis=0)  # [R, K, C]
        next_position = ops.max(positions, initial=-1.0) + 1.0
        return cache.select(rows, self._oldest_visible(next_position))

    def track_coverage(self, cache: DecodingCache, source: Tensor) -> DecodingCache:
        """Returns the first cache, changed so that steps sum `DecodingCache.coverage`.

        Padding of the source, ids [B, S], needs no attention: its sum begins at 1.
        """
        beams = ops.shape(cache.positions)[1]
        padding = ops.cast(source == PAD, "float32")  # [B, S]
        coverage = ops.repeat(padding[:, None], beams, axis=1)  # [B, K, S]
        return cache._replace(coverage=coverage)

    def coverage(self, cache: DecodingCache) -> Tensor:
        """Returns the total attention [B, K, S] that each source token got."""
        return cache.coverage

    @property
    def reserves_cache(self) -> bool:
        """Whether no axis of the cache grows after `reserve_cache`."""
        for layer in self.decoder.layers:
            tokens = layer.self_attention.empty_cache(1, 1)
            if hasattr(tokens, "reserve"):
                continue
            if any(0 in x.shape for x in keras.tree.flatten(tokens)):
                return False
        return True

    def reserve_cache(self, cache: DecodingCache, steps: int | Tensor) -> DecodingCache:
        """Returns the cache, preallocated for a total number of steps.

        `decode_step` then writes into it, so that its size stays the same; on
        TensorFlow this needs XLA. `select_rows` cannot be used.

        Args:
            cache: from `start_cache`, or one preallocated for fewer steps.
            steps: the total number of steps, including those already done.
        """
        return cache.reserve(steps)

    def cache_shapes(self, cache: DecodingCache) -> DecodingCache:
        """Returns the shapes that hold for a cache of `start_cache` at every step."""
        return cache.shapes()


def _source_and_target(
    x: Sequence[Tensor] | Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """Returns the two arguments of `Transformer.call`, given as one."""
    if isinstance(x, Mapping):
        return x["source"], x["target"]
    source, target = x
    return source, target


def _row_keys(
    source: Tensor, target: Tensor, seed: Tensor | None, first_row: int | Tensor
) -> tuple[DropoutKeys | None, DropoutKeys | None]:
    """Returns the dropout keys of source and target, see `decoder_outputs`."""
    if seed is None:
        return None, None
    batch, source_length = ops.shape(source)
    length = ops.shape(target)[1]
    return (
        row_keys(seed, batch, source_length, first_row=first_row),
        row_keys(seed, batch, length, source_length, first_row),
    )


def _packed_keys(
    packing: Packing, seed: Tensor | None
) -> tuple[DropoutKeys | None, DropoutKeys | None]:
    """Returns the dropout keys of source and target in packed rows."""
    if seed is None:
        return None, None
    source = packing.source_segments, packing.source_positions
    target = packing.target_segments, packing.target_positions
    return token_keys(seed, *source), token_keys(seed, *target, source[1])


def _full_scores(
    stack: Stack, scores: Sequence[Tensor], length: int | Tensor
) -> list[Tensor]:
    """Returns the self-attention scores of each layer as [B, H, T, T], T = `length`."""
    full = []
    for layer, layer_scores in zip(stack.layers, scores, strict=True):
        if isinstance(layer.self_attention, SelfAttention):
            layer_scores = layer.self_attention.full_attention_scores(
                layer_scores, length
            )
        full.append(layer_scores)
    return full
