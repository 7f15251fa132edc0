"""A Transformer whose decoder knows the next word of the source."""

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.model.backend import Nest, Tensor
from t2t_keras.model.transformer import Cache, Transformer

from .sets import NextWordHParams


class NextWordCache(NamedTuple):
    """A `Cache` with the number of words that each hypothesis has used.

    Attributes:
        words: [B, K] float32; the others are those of `Cache`.
    """

    positions: Tensor
    bias: Tensor
    coverage: Tensor
    matrices: tuple[Tensor, ...]
    layers: tuple[Nest, ...]
    words: Tensor


@keras.saving.register_keras_serializable("t2t_keras")
class NextWordTransformer(Transformer):
    """Cross-attention that is biased towards the next word (ALiBi, Press et al., 2022).

    Each target token stands for the next word of the source or, as brackets do, for
    none. So the tokens before a position tell which word is next: the one with the
    number c, if c of them stand for words. From the attention scores of word s,
    |s - c| times a slope is subtracted: 2, 1/2, 1/8 ... in the heads, and 0 in the
    last. Otherwise the model would have to count words by attention, and one error
    would shift all tags after it.

    Args:
        hparams: `num_brackets` tells which tokens stand for no word.
        *args: those of `Transformer`.
        **kwargs: likewise.
    """

    def __init__(self, hparams: NextWordHParams, *args: Any, **kwargs: Any) -> None:
        slopes = [2.0 * 0.25**head for head in range(hparams.num_heads - 1)]
        self._slopes = [*slopes, 0.0]
        self._first_word = 3 + hparams.num_brackets
        super().__init__(hparams, *args, **kwargs)

    def cross_attention_bias(self, bias: Tensor, shifted: Tensor) -> Tensor:
        """Returns `bias` [B, 1, 1, S] with the distances, [B, H, T, S]."""
        return self._biased(bias, ops.cumsum(self._stands_for_word(shifted), axis=1))

    def _stands_for_word(self, ids: Tensor) -> Tensor:
        """Returns 1 for each of some ids [...] that stands for a word, else 0."""
        return ops.cast(ids >= self._first_word, "float32")

    def _biased(self, bias: Tensor, words: Tensor) -> Tensor:
        """Returns `bias` [B, 1, 1, S] and the distances from words number [B, T]."""
        places = ops.arange(ops.shape(bias)[3], dtype="float32")
        distances = ops.abs(places - words[:, None, :, None])
        slopes = ops.convert_to_tensor(self._slopes, "float32")
        return bias - slopes[:, None, None] * distances

    def start_cache(
        self, memory: Tensor, source: Tensor, num_beams: int | Tensor
    ) -> NextWordCache:
        """Returns the cache for the first decoding step, as `Transformer` does."""
        cache = super().start_cache(memory, source, num_beams)
        words = ops.zeros((ops.shape(memory)[0], num_beams))
        return NextWordCache(*cache, words=words)

    def decode_step(
        self, ids: Tensor, position: Tensor, cache: NextWordCache
    ) -> tuple[Tensor, Cache]:
        """Extends every hypothesis by one position, as `Transformer` does."""
        words = cache.words + self._stands_for_word(ids)
        biased = cache._replace(bias=self._biased(cache.bias, words))
        logits, after = super().decode_step(ids, position, biased)
        return logits, after._replace(bias=cache.bias, words=words)

    def reorder_cache(self, cache: NextWordCache, parents: Tensor) -> Cache:
        """Returns the cache after beams changed places, as `Transformer` does."""
        words = ops.take_along_axis(cache.words, parents, axis=1)
        return super().reorder_cache(cache, parents)._replace(words=words)

    def select_rows(self, cache: NextWordCache, rows: Tensor) -> Cache:
        """Returns the cache of some sentences, as `Transformer` does."""
        words = ops.take(cache.words, rows, axis=0)
        return super().select_rows(cache, rows)._replace(words=words)
