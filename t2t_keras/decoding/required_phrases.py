"""Required phrases: outputs contain given sequences of tokens."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.candidates import BeamAllocation, Candidates, top_candidates
from t2t_keras.decoding.search_loop import NEG_INF
from t2t_keras.text.vocabulary import EOS, PAD


class PhraseState(NamedTuple):
    """How much of M required phrases the hypotheses have.

    Attributes:
        phrases: [B, M, L + 1] int32, the phrases' tokens, padded with PAD.
        lengths: [B, M] float32, their lengths; 0 where a sentence has fewer.
        matched: [B, K, M] float32, the number of tokens at the end of a hypothesis with
            which each phrase begins; the phrase's length once it is complete.
    """

    phrases: tf.Tensor
    lengths: tf.Tensor
    matched: tf.Tensor


class RequiredPhrases(BeamAllocation):
    """The beam allocation that puts required phrases into each output.

    After Post and Vilar (2018), "Fast lexically constrained decoding with dynamic beam
    allocation": besides its most likely continuations, each hypothesis is extended by
    the next tokens of its phrases, and the beam is shared among hypotheses that have
    equally many tokens of them. EOS is excluded until all phrases are complete. A token
    is excluded if too few tokens would remain for the phrases, so every output has
    them.
    """

    def __init__(
        self,
        phrases: tf.Tensor,
        max_length: tf.Tensor,
        prefix_length: int | tf.Tensor,
        vocab_size: int,
    ) -> None:
        """Takes the phrases of a batch.

        Args:
            phrases: [B, M, L] int32, the ids of the phrases of each output without EOS,
                padded with PAD.
            max_length: [B] int32, the maximum numbers of tokens in the outputs. The
                attribute `max_length` raises them where the phrases need more.
            prefix_length: [B] int32, how many tokens the outputs are forced to begin
                with, or 0.
            vocab_size: V.
        """
        # At least one phrase, which may be empty, and a column of PAD after each.
        self._phrases = tf.pad(phrases, [[0, 0], [0, 1], [0, 1]])  # [B, M + 1, L + 1]
        is_token = self._phrases != PAD
        self._lengths = tf.reduce_sum(tf.cast(is_token, tf.float32), axis=2)
        required = tf.cast(tf.reduce_sum(self._lengths, axis=1), tf.int32)  # [B]
        self._vocab_size = vocab_size
        # There is always an output with the prefix, all phrases and EOS.
        self.max_length = tf.where(
            max_length > 0,
            tf.maximum(max_length, prefix_length + required + 1),
            max_length,
        )

    def init(self, num_beams: tf.Tensor) -> PhraseState:
        """Returns the state before the first step."""
        shape = tf.stack([tf.shape(self._lengths)[0], num_beams, 1])
        matched = tf.zeros(shape) * self._lengths[:, None]  # [B, K, M]
        return PhraseState(self._phrases, self._lengths, matched)

    def candidates(
        self,
        state: PhraseState,
        alive_log_probs: tf.Tensor,
        logits: tf.Tensor,
        allowed: tf.Tensor,
        remaining_length: tf.Tensor,
    ) -> Candidates:
        """Returns the most likely continuations, and those that continue a phrase.

        Without phrases in the batch, they are the most likely ones.
        """
        return tf.cond(
            self._has_phrases(),
            lambda: self._phrase_candidates(
                state, alive_log_probs, logits, allowed, remaining_length
            ),
            lambda: top_candidates(alive_log_probs, logits, allowed),
        )

    def select(
        self,
        state: PhraseState,
        candidates: Candidates,
        log_probs: tf.Tensor,
        beam_size: tf.Tensor,
    ) -> tf.Tensor:
        """Returns K candidates [B, K]; those with equally many tokens form a bank.

        The best of each bank come first, then the second best of each, and so on.
        """
        return tf.cond(
            self._has_phrases(),
            lambda: _best_of_banks(
                self.num_matched_tokens(
                    state, candidates.parents, tf.cast(candidates.tokens, tf.int32)
                ),
                log_probs,
                beam_size,
            ),
            lambda: tf.math.top_k(log_probs, beam_size).indices,
        )

    def advance(
        self, state: PhraseState, parents: tf.Tensor, tokens: tf.Tensor
    ) -> PhraseState:
        """Returns the state after a step, with the arguments of a constraint."""
        matched = tf.gather(state.matched, parents, batch_dims=1)  # [B, K, M]
        previous = state._replace(matched=matched)
        tokens = tokens[:, :, None]  # [B, K, 1]
        restarted = tf.cast(state.phrases[:, None, :, 0] == tokens, tf.float32)
        continued = tf.where(_next_tokens(previous) == tokens, matched + 1, restarted)
        is_complete = matched >= state.lengths[:, None]
        return previous._replace(matched=tf.where(is_complete, matched, continued))

    def num_matched_tokens(
        self, state: PhraseState, parents: tf.Tensor, tokens: tf.Tensor
    ) -> tf.Tensor:
        """Returns how many tokens of the phrases candidates have, [B, N] float32.

        It takes the arguments of `advance`, for N candidates.
        """
        state = self.advance(state, parents, tokens)
        is_open = tf.cast(state.matched < state.lengths[:, None], tf.float32)
        required = tf.reduce_sum(is_open * state.lengths[:, None], axis=2)
        # Only one of the phrases that have begun can continue; the others restart.
        longest = tf.reduce_max(is_open * state.matched, axis=2)
        total = tf.reduce_sum(state.lengths, axis=1)[:, None]
        return total - (required - longest)

    def _has_phrases(self) -> tf.Tensor:
        """Returns whether any sentence has a phrase, a scalar."""
        return tf.reduce_any(self._lengths > 0)

    def _phrase_candidates(
        self,
        state: PhraseState,
        alive_log_probs: tf.Tensor,
        logits: tf.Tensor,
        allowed: tf.Tensor,
        remaining_length: tf.Tensor,
    ) -> Candidates:
        """Returns both kinds of candidates."""
        allowed &= self._mask(state, remaining_length)  # [B, K, V]
        is_next = self._any_of(_next_tokens(state))  # [B, K, V]
        return tf.nest.map_structure(
            lambda x, y: tf.concat([x, y], 1),
            top_candidates(alive_log_probs, logits, allowed & ~is_next),
            top_candidates(alive_log_probs, logits, allowed & is_next),
        )

    def _mask(self, state: PhraseState, remaining_length: tf.Tensor) -> tf.Tensor:
        """Returns the tokens [B, K, V] after which the phrases fit in what remains."""
        remaining = tf.cast(remaining_length, tf.float32)[:, None]  # [B, 1]
        is_open = state.matched < state.lengths[:, None]  # [B, K, M]
        # The tokens that the phrases need if all of them restart.
        required = tf.where(is_open, state.lengths[:, None], 0.0)
        required = tf.reduce_sum(required, axis=2)  # [B, K]
        may_continue = required[:, :, None] - state.matched + 1 <= remaining[:, :, None]
        may_start = is_open & (required + 1 <= remaining)[:, :, None]
        first_tokens = tf.where(may_start, state.phrases[:, None, :, 0], PAD)
        next_tokens = tf.where(may_continue, _next_tokens(state), PAD)
        is_progress = self._any_of(tf.concat([next_tokens, first_tokens], axis=2))
        is_eos = np.arange(self._vocab_size) == EOS
        may_diverge = (required + 2 <= remaining)[:, :, None] & ~is_eos
        return is_progress | may_diverge | (required <= 0)[:, :, None]

    def _any_of(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns the mask [B, K, V] of tokens [B, K, any]."""
        return tf.reduce_any(tf.one_hot(tokens, self._vocab_size, True, False), axis=2)


def _next_tokens(state: PhraseState) -> tf.Tensor:
    """Returns the next token of each phrase, [B, K, M]; PAD if it is complete."""
    indices = tf.transpose(tf.cast(state.matched, tf.int32), [0, 2, 1])  # [B, M, K]
    tokens = tf.gather(state.phrases, indices, axis=2, batch_dims=2)
    return tf.transpose(tokens, [0, 2, 1])


def _best_of_banks(
    banks: tf.Tensor, log_probs: tf.Tensor, beam_size: tf.Tensor
) -> tf.Tensor:
    """Returns the indices [B, K] of candidates, most likely first.

    Args:
        banks: [B, N] float32, the bank of each candidate.
        log_probs: [B, N]; -inf for those that cannot be chosen.
        beam_size: K.
    """
    is_better = log_probs[:, None, :] > log_probs[:, :, None]  # [B, N, N]
    is_same_bank = banks[:, :, None] == banks[:, None, :]
    ranks = tf.math.count_nonzero(is_better & is_same_bank, axis=2, dtype=tf.float32)
    ranks = tf.where(log_probs > NEG_INF, ranks, float("inf"))  # [B, N]
    # Of equal ranks, the most likely comes first.
    order = tf.argsort(-log_probs, stable=True)  # [B, N]
    sorted_ranks = tf.gather(ranks, order, batch_dims=1)
    by_rank = tf.argsort(sorted_ranks, stable=True)[:, :beam_size]
    selected = tf.gather(order, by_rank, batch_dims=1)  # [B, K]
    selected_log_probs = tf.gather(log_probs, selected, batch_dims=1)
    best = tf.math.top_k(selected_log_probs, beam_size).indices
    return tf.gather(selected, best, batch_dims=1)
