"""A Transformer with cross-attention that is biased towards the next source word."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.model.backend import Nest, Tensor
from t2t_keras.model.layers import SelfAttention, rotated
from t2t_keras.model.transformer import Transformer

from .sets import NextWordHParams


class NextWordCache(NamedTuple):
    """The attributes of `Cache`, and the number of words in each hypothesis.

    Attributes:
        words: [B, K] float32, the number of tokens so far that stand for words.
    """

    positions: Tensor
    bias: Tensor
    coverage: Tensor
    matrices: tuple[Tensor, ...]
    layers: tuple[Nest, ...]
    words: Tensor


@keras.saving.register_keras_serializable("t2t_keras")
class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions."""

    def project(self, x: Tensor, bias: Any = None, cache: Any = None) -> list[Tensor]:
        """Returns queries and keys, rotated by their positions, and values."""
        query, key, value = super().project(x, bias, cache)
        if cache is None:
            positions = ops.arange(ops.shape(x)[1])[None]
        else:
            visible = ops.cast(ops.equal(bias[:, 0], 0), "int32")  # [B, K, C + K]
            positions = ops.sum(visible, axis=2) - 1
        return [rotated(query, positions), rotated(key, positions), value]


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

    def make_positions(self) -> Callable[[Tensor], Any]:
        """Adds nothing to the embeddings: self-attention encodes the positions."""
        return lambda positions: 0.0

    def make_self_attention(self, causal: bool) -> SelfAttention:
        """Returns rotary self-attention."""
        options = self.attention_options("self_attention")
        return RotaryAttention(causal=causal, **options)

    def cross_attention_bias(self, bias: Tensor, shifted: Tensor) -> Tensor:
        """Adds the bias towards the next word to `bias`; returns [B, H, T, S]."""
        return self._biased(bias, ops.cumsum(self._stands_for_word(shifted), axis=1))

    def _stands_for_word(self, ids: Tensor) -> Tensor:
        """Returns 1.0 where ids [...] stand for words, and 0.0 elsewhere."""
        return ops.cast(ids >= self._first_word, "float32")

    def _biased(self, bias: Tensor, words: Tensor) -> Tensor:
        """Adds the bias towards the next word to `bias`.

        Args:
            bias: [B, 1, 1, S], masks padding.
            words: [B, T], the source positions of the next words; [B, K] in decoding.

        Returns:
            The sum, [B, H, T, S].
        """
        places = ops.arange(ops.shape(bias)[3], dtype="float32")
        distances = ops.abs(places - words[:, None, :, None])
        slopes = ops.convert_to_tensor(self._slopes, "float32")
        return bias - slopes[:, None, None] * distances

    def start_cache(
        self, encoder_output: Tensor, source: Tensor, num_beams: int | Tensor
    ) -> Any:
        """Returns the cache for the first decoding step, as `Transformer` does."""
        cache = super().start_cache(encoder_output, source, num_beams)
        words = ops.zeros((ops.shape(encoder_output)[0], num_beams))
        return NextWordCache(*cache, words=words)

    def decode_step(
        self, ids: Tensor, position: Tensor, cache: Any
    ) -> tuple[Tensor, Any]:
        """Extends every hypothesis by one position, as `Transformer` does."""
        words = cache.words + self._stands_for_word(ids)
        biased = cache._replace(bias=self._biased(cache.bias, words))
        after: Any
        logits, after = super().decode_step(ids, position, biased)
        return logits, after._replace(bias=cache.bias, words=words)

    def reorder_cache(self, cache: Any, parents: Tensor) -> Any:
        """Reorders the beams of the cache, as `Transformer` does."""
        words = ops.take_along_axis(cache.words, parents, axis=1)
        reordered: Any = super().reorder_cache(cache, parents)
        return reordered._replace(words=words)

    def select_rows(self, cache: Any, rows: Tensor) -> Any:
        """Returns the cache of some sentences, as `Transformer` does."""
        words = ops.take(cache.words, rows, axis=0)
        selected: Any = super().select_rows(cache, rows)
        return selected._replace(words=words)
