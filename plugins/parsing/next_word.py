"""A Transformer with cross-attention that is biased towards the next source word."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras.model.backend import Tensor, arange
from t2t_keras.model.layers import SelfAttention, SelfAttentionCache, bias_positions
from t2t_keras.model.layers.cache import DecodingCache
from t2t_keras.model.layers.masks import Packing
from t2t_keras.model.transformer import Transformer

from .sets import NextWordHParams


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotates queries or keys by their positions (RoPE, Su et al., 2021).

    The pairs (x[i], x[i + d / 2]) are rotated by angles proportional to the position.
    The product of a query and a key then depends on the distance between them.

    Args:
        x: [B, H, T, d]; d is even.
        positions: [1, T] or [B, T], of any numeric dtype.
    """
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-np.arange(half) / half)
    angles = ops.cast(positions, "float32")[:, None, :, None] * rates.astype("float32")
    cos = ops.cast(ops.cos(angles), x.dtype)  # [B, 1, T, d / 2]
    sin = ops.cast(ops.sin(angles), x.dtype)
    a = x[..., :half]
    b = x[..., half:]
    return ops.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


@keras.saving.register_keras_serializable("t2t_keras")
class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions."""

    def encode_positions(
        self,
        query: Tensor,
        key: Tensor,
        bias: Tensor | None,
        cache: SelfAttentionCache | None,
    ) -> tuple[Tensor, Tensor]:
        """Rotates queries and keys by their positions."""
        if cache is None:
            positions = bias_positions(bias, ops.shape(query)[2])  # [1 or B, T]
        else:
            assert bias is not None
            visible = ops.cast(ops.equal(bias[:, 0], 0), "int32")  # [B, K, C + K]
            positions = ops.sum(visible, axis=2) - 1  # [B, K]
        return rotate(query, positions), rotate(key, positions)


class NextWordTransformer(Transformer):
    """A Transformer whose cross-attention is biased towards the next source word.

    The source must have one token per word. A target token is either a tag, which
    stands for the next source word, or a bracket, which stands for none. So if c of the
    previous target tokens are tags, the next word is at source position c, counted from
    0. As in ALiBi (Press et al., 2022), the bias is linear in the distance: the
    attention score of source position s is reduced by slope * |s - c|. The slopes of
    the heads are 2, 1/2, 1/8, ..., and 0 in the last of several heads. Without this
    bias, the model would have to count words by attention, and one error would shift
    all later tags.

    Self-attention has rotary positions, so its scores depend on the distance between
    tokens.

    In decoding, `DecodingCache.state` is [B, K] float32, the number of tokens so far
    that stand for words.

    Args:
        hparams: hyper-parameters; ids 3 to 2 + `num_brackets` are brackets.
        *args: see `Transformer`.
        **kwargs: see `Transformer`.
    """

    def __init__(self, hparams: NextWordHParams, *args: Any, **kwargs: Any) -> None:
        heads = hparams.num_heads
        slopes = [2.0 * 0.25**head for head in range(heads)]
        self._slopes = [*slopes[:-1], 0.0] if heads > 1 else slopes
        self._first_word = 3 + hparams.num_brackets
        super().__init__(hparams, *args, **kwargs)

    def make_positions(self) -> Callable[[Tensor], Tensor]:
        """Adds nothing to the embeddings: self-attention encodes the positions."""
        return lambda positions: 0.0

    def make_self_attention(self, causal: bool) -> SelfAttention:
        """Returns rotary self-attention."""
        options = self.attention_options("self_attention")
        return RotaryAttention(causal=causal, **options)

    def cross_attention_bias(
        self, bias: Tensor, shifted: Tensor, packing: Packing | None = None
    ) -> Tensor:
        """Adds the bias towards the next word to `bias`; returns [B, H, T, S]."""
        words = ops.cumsum(self._stands_for_word(shifted), axis=1)  # [B, T]
        if packing is None:
            return self._add_word_bias(bias, words)
        # A segment begins with PAD, so the count there is that of earlier segments.
        steps = arange(ops.shape(shifted)[1])  # [T]
        starts = ops.subtract(steps, packing.target_positions)  # [B, T]
        words = words - ops.take_along_axis(words, starts, axis=1)
        positions = ops.cast(packing.source_positions, "float32")  # [B, S]
        return self._add_word_bias(bias, words, positions)

    def _stands_for_word(self, ids: Tensor) -> Tensor:
        """Returns 1.0 where ids [...] stand for words, and 0.0 elsewhere."""
        return ops.cast(ids >= self._first_word, "float32")

    def _add_word_bias(
        self, bias: Tensor, words: Tensor, positions: Tensor | None = None
    ) -> Tensor:
        """Adds the bias towards the next word to `bias`.

        Args:
            bias: [B, 1, 1, S], masks padding; in packed rows [B, 1, T, S].
            words: [B, T], the source positions of the next words; [B, K] in decoding.
            positions: float32 [B, S], those of the source in packed rows.

        Returns:
            The sum, [B, H, T, S].
        """
        if positions is None:
            positions = ops.arange(ops.shape(bias)[3], dtype="float32")[None]  # [1, S]
        distances = ops.abs(positions[:, None, None, :] - words[:, None, :, None])
        slopes = ops.convert_to_tensor(self._slopes, "float32")  # [H]
        return bias - slopes[:, None, None] * distances  # [B, H, T, S]

    def start_cache(
        self, encoder_output: Tensor, source: Tensor, num_beams: int | Tensor
    ) -> DecodingCache:
        """Returns the cache for the first decoding step, as `Transformer` does."""
        cache = super().start_cache(encoder_output, source, num_beams)
        batch = ops.shape(encoder_output)[0]
        words = ops.zeros((batch, num_beams), "float32")  # [B, K]
        return cache._replace(state=words)

    def decode_step(
        self, ids: Tensor, position: Tensor, cache: DecodingCache
    ) -> tuple[Tensor, DecodingCache]:
        """Extends every hypothesis by one position, as `Transformer` does."""
        words = cache.state + self._stands_for_word(ids)  # [B, K]
        biased = cache._replace(bias=self._add_word_bias(cache.bias, words))
        logits, new_cache = super().decode_step(ids, position, biased)
        return logits, new_cache._replace(bias=cache.bias, state=words)

    def reorder_cache(self, cache: DecodingCache, parents: Tensor) -> DecodingCache:
        """Reorders the beams of the cache, as `Transformer` does."""
        words = ops.take_along_axis(cache.state, parents, axis=1)  # [B, K]
        return super().reorder_cache(cache, parents)._replace(state=words)

    def select_rows(self, cache: DecodingCache, rows: Tensor) -> DecodingCache:
        """Returns the cache of some sentences, as `Transformer` does."""
        words = ops.take(cache.state, rows, axis=0)  # [R, K]
        return super().select_rows(cache, rows)._replace(state=words)
