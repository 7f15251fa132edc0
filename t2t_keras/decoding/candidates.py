"""Candidates: continuations by one token among which beam search chooses."""

from typing import NamedTuple, Protocol

import tensorflow as tf

from t2t_keras.decoding.hypotheses import NEG_INF
from t2t_keras.decoding.top_k import top_k
from t2t_keras.model.backend import Nest


class Candidates(NamedTuple):
    """N continuations of a sentence's K alive hypotheses.

    Attributes:
        parents: [B, N] int64, the beam that each of them continues.
        tokens: [B, N] int64, the token that each of them adds.
        log_probs: [B, N], their log-probabilities.
    """

    parents: tf.Tensor
    tokens: tf.Tensor
    log_probs: tf.Tensor


class BeamAllocation(Protocol):
    """Decides which continuations are candidates and which of them stay alive.

    Beam search takes the most likely ones (`BestCandidates`) unless it is given another
    allocation. The state is any nest of tensors whose first axis is the batch, like
    that of a `Constraint`.
    """

    def init(self, num_beams: tf.Tensor) -> Nest:
        """Returns the state before the first step."""

    def candidates(
        self,
        state: Nest,
        alive_log_probs: tf.Tensor,
        logits: tf.Tensor,
        allowed: tf.Tensor,
        remaining_length: tf.Tensor,
    ) -> Candidates:
        """Returns the candidates of a step.

        Args:
            state: the state before the step.
            alive_log_probs: [B, K], the log-probabilities of the alive hypotheses.
            logits: [B, K, V], the logits of their next tokens.
            allowed: boolean, broadcasts to [B, K, V].
            remaining_length: [B], how many tokens may still be added.
        """

    def select(
        self,
        state: Nest,
        candidates: Candidates,
        log_probs: tf.Tensor,
        beam_size: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the indices [B, K] of the candidates that stay alive, best first.

        Args:
            state: the state before the step.
            candidates: N candidates for each sentence.
            log_probs: [B, N]; -inf for those that end in EOS.
            beam_size: K.
        """

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the state after a step; see `Constraint.advance`."""


class BestCandidates:
    """The most likely continuations."""

    def init(self, num_beams: tf.Tensor) -> Nest:
        """Returns the empty state."""
        del num_beams
        return ()

    def candidates(
        self,
        state: Nest,
        alive_log_probs: tf.Tensor,
        logits: tf.Tensor,
        allowed: tf.Tensor,
        remaining_length: tf.Tensor,
    ) -> Candidates:
        """Returns the 2K most likely continuations."""
        del state, remaining_length
        return top_candidates(alive_log_probs, logits, allowed)

    def select(
        self,
        state: Nest,
        candidates: Candidates,
        log_probs: tf.Tensor,
        beam_size: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the indices of the K most likely candidates."""
        del state, candidates
        return tf.math.top_k(log_probs, beam_size).indices

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the same state."""
        del parents, tokens
        return state


def top_candidates(
    alive_log_probs: tf.Tensor, logits: tf.Tensor, allowed: tf.Tensor
) -> Candidates:
    """Returns the 2K most likely continuations, best first; with K = 1, only one.

    The 2K best of all K * V continuations are among the 2K best of each beam. So the
    latter are found first, which sorts shorter rows.

    Args:
        alive_log_probs: [B, K], the log-probabilities of the alive hypotheses.
        logits: [B, K, V], the logits of their next tokens.
        allowed: boolean, broadcasts to [B, K, V].
    """
    beam_size = tf.shape(logits)[1]
    vocab_size = logits.shape[2]
    count = 2 * beam_size - tf.maximum(2 - beam_size, 0)
    per_beam = tf.minimum(count, vocab_size)
    # Normalize only the top logits, not all V of them.
    top_logits, tokens = top_k(tf.where(allowed, logits, NEG_INF), per_beam)
    log_total = tf.reduce_logsumexp(logits, axis=2, keepdims=True)  # [B, K, 1]
    # [B, K, 2K]
    log_probs = tf.expand_dims(alive_log_probs, 2) + (top_logits - log_total)

    row = [-1, beam_size * per_beam]
    count = tf.minimum(count, beam_size * per_beam)
    log_probs, indices = tf.math.top_k(tf.reshape(log_probs, row), count)  # [B, 2K]
    # In float32: a GPU computes with int32 on the host. XLA divides to 2 ulp there, so
    # that an exact quotient may come out below its integer; half an index keeps away
    # from integers, and changes no parent.
    parents = (tf.cast(indices, tf.float32) + 0.5) / tf.cast(per_beam, tf.float32)
    parents = tf.cast(tf.floor(parents), tf.int64)  # [B, 2K]
    tokens = tf.reshape(tf.cast(tokens, tf.int64), row)
    tokens = tf.gather(tokens, indices, batch_dims=1)  # [B, 2K]
    return Candidates(parents, tokens, log_probs)
