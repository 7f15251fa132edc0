"""Constraints: which tokens beam search and sampling may generate.

Here are the hook and the simple ones: a forced prefix, a minimum length, no n-gram
twice. `phrases` has those that look for phrases.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from t2t_keras.model.backend import Nest
from t2t_keras.text.vocabulary import EOS, PAD


class Constraint(Protocol):
    """Rules out continuations during beam search or sampling.

    A constraint has a state, any nest of tensors whose first axis is the batch: when
    sentences leave the batch, the search selects the rows of the others. So whatever
    differs between sentences belongs to the state. The constraint makes the state from
    the source, tells at every step which tokens each beam may take, and updates the
    state when the beams are reordered and extended. Excluding tokens does not change
    the log-probabilities of the others: a constraint restricts the search and not the
    model, so scores still equal the scores of teacher forcing.
    """

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the state before the first step, for source ids [B, S]."""

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns which tokens are allowed at this position (from 0).

        The result is boolean and broadcasts to [B, K, V].
        """

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the state after a step.

        Args:
            state: the state before the step.
            parents: [B, K]; beam k continues what was beam `parents[b, k]`.
            tokens: [B, K], the token that beam k takes.
        """


# What `Problem.constraint` returns: a function that maps, in the graph, the source
# texts [B] and the maximum output lengths [B] to the constraint of the batch and the
# maximum lengths, which it raises where no allowed output would be short enough.
BatchConstraint: TypeAlias = Callable[
    [tf.Tensor, tf.Tensor], tuple[Constraint, tf.Tensor]
]


def allow_only_mask(token: int, vocab_size: int) -> np.ndarray:
    """Returns the mask [V] that allows a single token.

    Masks are constants or come from tables: a GPU compares integers in the host's
    memory, so a mask [B, K, V] would have to be copied to the device.
    """
    return np.arange(vocab_size) == token


class AllOf:
    """Allows the tokens that all its constraints allow; without any, all tokens."""

    def __init__(self, constraints: Iterable[Constraint] = ()) -> None:
        self._constraints = tuple(constraints)

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the states of all constraints."""
        return tuple(c.init(source, num_beams) for c in self._constraints)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the conjunction of their masks."""
        allowed = tf.constant(True)
        for constraint, substate in zip(self._constraints, state, strict=True):
            allowed = tf.logical_and(allowed, constraint.mask(substate, position))
        return allowed

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Advances all states."""
        return tuple(
            constraint.advance(substate, parents, tokens)
            for constraint, substate in zip(self._constraints, state, strict=True)
        )


class StatelessConstraint:
    """Base class of constraints that do not depend on the tokens so far."""

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the empty state."""
        del source, num_beams
        return ()

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the same state."""
        del parents, tokens
        return state


class BannedTokens(StatelessConstraint):
    """Excludes certain tokens."""

    def __init__(self, tokens: Iterable[int], vocab_size: int) -> None:
        self._allowed = np.isin(np.arange(vocab_size), list(tokens), invert=True)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [V] that excludes the banned tokens."""
        del state, position
        return tf.constant(self._allowed)


class ForcedPrefix(StatelessConstraint):
    """Forces each output to begin with a prefix, which may differ between sentences."""

    def __init__(
        self, prefixes: tf.Tensor | Sequence[Sequence[int]], vocab_size: int
    ) -> None:
        """Takes the prefixes as ids [B, P] without EOS, padded with PAD."""
        self._prefixes = tf.convert_to_tensor(prefixes, tf.int32)
        self._vocab_size = vocab_size

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the prefixes with one more column of PAD, for all later positions."""
        del source, num_beams
        return tf.pad(self._prefixes, [[0, 0], [0, 1]], constant_values=PAD)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [B, 1, V] that allows the prefix's token, or all."""
        column = tf.minimum(position, tf.shape(state)[1] - 1)
        forced = tf.gather(state, column, axis=1)[:, None, None]  # [B, 1, 1]
        # In float32, so that a GPU compares them: see `allow_only_mask`.
        tokens = np.arange(self._vocab_size, dtype=np.float32)  # [V]
        return tf.logical_or(forced == PAD, tf.cast(forced, tf.float32) == tokens)


class MinimumLength(StatelessConstraint):
    """Excludes EOS until an output has `length` tokens."""

    def __init__(self, length: int | tf.Tensor, vocab_size: int) -> None:
        self._length = length
        self._vocab_size = vocab_size

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [V] that excludes EOS, or nothing."""
        del state
        is_eos = allow_only_mask(EOS, self._vocab_size)  # [V]
        return tf.logical_or(~is_eos, position >= self._length)


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
