"""Candidates: continuations by one token among which beam search chooses.

Only the blocks of values with the largest maxima are searched, which takes a quarter of
the time of `tf.math.top_k` for 32,000 values on a CPU.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.search_loop import NEG_INF
from t2t_keras.model.backend import Nest

BLOCK_SIZE = 64


def divide(values: tf.Tensor, fill: float | bool) -> tf.Tensor:
    """Returns values [..., V] in blocks [..., blocks, 64], the last one filled up."""
    values = tf.convert_to_tensor(values)
    size = values.shape[-1]
    *axes, _ = tf.unstack(tf.shape(values))
    if size % BLOCK_SIZE:
        padding = tf.fill([*axes, -size % BLOCK_SIZE], tf.cast(fill, values.dtype))
        values = tf.concat([values, padding], axis=-1)
    return tf.reshape(values, [*axes, -(-size // BLOCK_SIZE), BLOCK_SIZE])


def first_of_largest(values: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """Returns the indices [B, k] of the k largest values [B, N], in ascending order.

    They are float32: a GPU computes with int32 on the host. An index's place is the
    number of smaller ones: counting is one kernel on a GPU, sorting two.
    """
    indices = tf.math.top_k(values, k, sorted=False).indices  # [B, k]
    indices = tf.cast(indices, tf.float32)
    row = tf.expand_dims(indices, 1)  # [B, 1, k]; LiteRT cannot index by None
    # Entry j of row i: whether the j-th index is smaller than the i-th.
    is_smaller = row < tf.expand_dims(indices, 2)  # [B, k, k]
    ranks = tf.reduce_sum(tf.cast(is_smaller, tf.float32), axis=2)  # [B, k]
    rank_of_row = tf.expand_dims(tf.cast(tf.range(k), tf.float32), 1)  # [k, 1]
    is_rank = rank_of_row == tf.expand_dims(ranks, 1)  # [B, k, k]
    return tf.reduce_sum(tf.where(is_rank, row, 0.0), axis=2)


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


class BeamAllocation:
    """Decides which continuations are candidates and which of them stay alive.

    Here they are the most likely ones. A subclass may have a state: any nest of tensors
    whose first axis is the batch, like that of a `Constraint`.
    """

    def init(self, num_beams: tf.Tensor) -> Nest:
        """Returns the state before the first step."""
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
        """Returns the candidates of a step.

        Args:
            state: the state before the step.
            alive_log_probs: [B, K], the log-probabilities of the alive hypotheses.
            logits: [B, K, V], the logits of their next tokens.
            allowed: boolean, broadcasts to [B, K, V].
            remaining_length: [B], how many tokens may still be added.
        """
        del state, remaining_length
        return top_candidates(alive_log_probs, logits, allowed)

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
        del state, candidates
        return tf.math.top_k(log_probs, beam_size).indices

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the state after a step; see `Constraint.advance`."""
        del parents, tokens
        return state


def top_candidates(
    alive_log_probs: tf.Tensor, logits: tf.Tensor, allowed: tf.Tensor
) -> Candidates:
    """Returns the 2K most likely continuations, best first; with K = 1, only one.

    The logits are divided into blocks of 64 tokens. The N most likely continuations are
    in the N blocks with the largest maxima, so only these blocks are searched. Equal
    ones keep their order.

    Args:
        alive_log_probs: [B, K], the log-probabilities of the alive hypotheses.
        logits: [B, K, V], the logits of their next tokens.
        allowed: boolean [V], or what broadcasts to [B, K, V].
    """
    beam_size = tf.shape(logits)[1]
    vocab_size = logits.shape[2]
    count = 2 * beam_size - tf.maximum(2 - beam_size, 0)  # N
    blocks = divide(logits, NEG_INF)  # [B, K, blocks, 64]
    blocks_per_beam = blocks.shape[2]
    block_maxima = tf.reduce_max(blocks, axis=3)  # [B, K, blocks]
    blocks = tf.where(divide(allowed, False), blocks, NEG_INF)  # without excluded ones
    maxima = tf.reduce_max(blocks, axis=3)  # [B, K, blocks]
    # The maximum of both is the first. It keeps XLA from merging the first two
    # reductions, so that one pass over the logits computes both kinds of maxima.
    largest = tf.maximum(block_maxima, maxima)  # [B, K, blocks]
    largest = tf.reduce_max(largest, axis=2, keepdims=True)  # [B, K, 1]
    total = tf.reduce_sum(tf.exp(logits - largest), axis=2, keepdims=True)
    log_total = largest + tf.math.log(total)  # [B, K, 1]

    # Normalize only the largest logits, not all V of them.
    alive_log_probs = tf.expand_dims(alive_log_probs, 2)  # [B, K, 1]
    maxima = alive_log_probs + (maxima - log_total)  # [B, K, blocks]
    maxima = tf.reshape(maxima, [-1, beam_size * blocks_per_beam])
    blocks = tf.reshape(blocks, [-1, beam_size * blocks_per_beam, BLOCK_SIZE])
    # [B, M], the numbers of the blocks to be searched
    best_blocks = first_of_largest(maxima, tf.minimum(count, tf.shape(maxima)[1]))
    searched = tf.gather(blocks, tf.cast(best_blocks, tf.int32), batch_dims=1)
    beams = tf.cast(_quotient(best_blocks, blocks_per_beam), tf.int32)  # [B, M]
    searched -= tf.gather(log_total, beams, batch_dims=1)  # [B, M, 64]
    searched += tf.gather(alive_log_probs, beams, batch_dims=1)
    num_searched = tf.shape(best_blocks)[1] * BLOCK_SIZE
    log_probs, offsets = tf.math.top_k(
        tf.reshape(searched, [-1, num_searched]), count
    )  # [B, N]
    offsets = tf.cast(offsets, tf.float32)
    slots = _quotient(offsets, BLOCK_SIZE)
    block = tf.gather(best_blocks, tf.cast(slots, tf.int32), batch_dims=1)  # [B, N]
    parents = _quotient(block, blocks_per_beam)
    tokens = (block - parents * blocks_per_beam - slots) * BLOCK_SIZE + offsets
    # If fewer than N are allowed, others follow, also those that fill up a block.
    tokens = tf.minimum(tokens, vocab_size - 1.0)
    return Candidates(tf.cast(parents, tf.int64), tf.cast(tokens, tf.int64), log_probs)


def _quotient(indices: tf.Tensor, size: int) -> tf.Tensor:
    """Returns indices // size, for whole numbers in float32.

    A GPU computes with int32 on the host. XLA divides to 2 ulp there, so that an exact
    quotient may come out below its integer; half an index keeps away from integers.
    """
    return tf.floor((indices + 0.5) / float(size))
