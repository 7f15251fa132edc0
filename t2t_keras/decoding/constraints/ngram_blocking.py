"""N-gram blocking: outputs do not repeat sequences of tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.text.tokenizer import EOS, PAD


class NgramState(NamedTuple):
    """The tokens so far, and how often an n-gram may occur.

    Attributes:
        tokens: [B, K, n - 1 + T]; the first n - 1 stand before the output and equal no
            token.
        max_counts: [B] float32.
    """

    tokens: tf.Tensor
    max_counts: tf.Tensor


class NoRepeatedNgrams:
    """Excludes tokens that would repeat an n-gram too often.

    An n-gram (n tokens in a row, EOS not counted) may occur in an output once, or as
    often as the most frequent n-gram of the source does: so that "no, no, no!" can be
    translated, but a loop ends. An output that is forced to begin with a prefix may
    also repeat as often as the prefix does. EOS is never excluded.
    """

    def __init__(
        self,
        n: int,
        vocab_size: int,
        prefixes: tf.Tensor | Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Takes n, at least 1, and prefixes as ids [B, P] padded with PAD, or None."""
        self._n = n
        self._vocab_size = vocab_size
        self._prefixes = prefixes

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> NgramState:
        """Returns the state before the first step."""
        max_counts = _max_ngram_count(source, self._n)  # [B]
        if self._prefixes is not None:
            prefixes = tf.convert_to_tensor(self._prefixes, tf.int32)
            max_counts = tf.maximum(max_counts, _max_ngram_count(prefixes, self._n))
        shape = tf.stack([tf.shape(source)[0], num_beams, self._n - 1])
        return NgramState(tf.fill(shape, -1), max_counts)

    def mask(self, state: NgramState, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [B, K, V] that excludes what would occur too often."""
        del position
        context = self._n - 1
        batch, beams, length = tf.unstack(tf.shape(state.tokens))
        num_ngrams = length - context
        last_tokens = state.tokens[:, :, context:]  # [B, K, T]: of the n-grams so far
        # Which of them begin with the output's last n - 1 tokens.
        is_match = tf.ones_like(last_tokens, tf.bool)  # [B, K, T]
        for i in range(context):
            token = state.tokens[:, :, num_ngrams + i, None]  # [B, K, 1]
            is_match &= state.tokens[:, :, i : num_ngrams + i] == token
        beam_indices = tf.where(is_match)[:, :2]  # [matches, 2]
        matches = tf.cast(tf.boolean_mask(last_tokens, is_match), tf.int64)
        counts = tf.scatter_nd(
            tf.concat([beam_indices, matches[:, None]], axis=1),
            tf.ones_like(matches, tf.float32),
            tf.cast(tf.stack([batch, beams, self._vocab_size]), tf.int64),
        )  # [B, K, V]
        return counts < state.max_counts[:, None, None]

    def advance(
        self, state: NgramState, parents: tf.Tensor, tokens: tf.Tensor
    ) -> NgramState:
        """Returns the state with one more token."""
        previous = tf.gather(state.tokens, parents, batch_dims=1)
        return state._replace(tokens=tf.concat([previous, tokens[:, :, None]], axis=2))


def _max_ngram_count(ids: tf.Tensor, n: int) -> tf.Tensor:
    """Returns how often the most frequent n-gram of ids [B, S] occurs, at least 1.

    EOS and PAD are in no n-gram. The result is float32 [B] (see `allow_only_mask`).
    """
    num_ngrams = tf.maximum(tf.shape(ids)[1] - n + 1, 0)
    is_equal = tf.constant(True)
    is_ngram = tf.constant(True)
    for i in range(n):
        tokens = ids[:, i : num_ngrams + i]  # [B, S - n + 1]
        is_equal &= tokens[:, :, None] == tokens[:, None, :]
        is_ngram &= (tokens != EOS) & (tokens != PAD)
    is_equal &= is_ngram[:, :, None] & is_ngram[:, None, :]  # pairs of n-grams
    counts = tf.reduce_sum(tf.cast(is_equal, tf.float32), axis=2)
    return tf.maximum(tf.reduce_max(counts, axis=1), 1.0)
