"""Constraints: which tokens beam search and sampling may generate."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from t2t_keras.model.backend import Nest
from t2t_keras.text.tokenizer import EOS, PAD


class Constraint(Protocol):
    """Rules out continuations during beam search or sampling.

    A constraint has a state, any nest of tensors whose first axis is the batch: when
    sentences leave the batch, the search selects the rows of the others. So all that
    differs between sentences belongs to the state. The constraint makes the state from
    the source, tells at every step which tokens each beam may take, and updates the
    state when the beams are reordered and extended. Excluding tokens does
    not change the log-probabilities of the others: a constraint restricts the search
    and not the model, so scores are still those of teacher forcing.
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


def only(token: int, vocab_size: int) -> np.ndarray:
    """Returns the mask [V] that allows a single token.

    Masks are constants or come from tables: a GPU compares integers in the host's
    memory, and a mask [B, K, V] would cross the bus.
    """
    return np.arange(vocab_size) == token


class AllOf:
    """Allows what all of several constraints allow; without any, everything."""

    def __init__(self, constraints: Iterable[Constraint] = ()) -> None:
        self._constraints = tuple(constraints)

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the states of all constraints."""
        return tuple(part.init(source, num_beams) for part in self._constraints)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the conjunction of their masks."""
        allowed = tf.constant(True)
        for part, its_state in zip(self._constraints, state, strict=True):
            allowed = tf.logical_and(allowed, part.mask(its_state, position))
        return allowed

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Advances all states."""
        return tuple(
            part.advance(its_state, parents, tokens)
            for part, its_state in zip(self._constraints, state, strict=True)
        )


class _Stateless:
    """Base class of constraints that depend only on the position."""

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the empty state."""
        del source, num_beams
        return ()

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the empty state."""
        del parents, tokens
        return state


class BannedTokens(_Stateless):
    """Excludes certain tokens."""

    def __init__(self, tokens: Iterable[int], vocab_size: int) -> None:
        self._allowed = np.isin(np.arange(vocab_size), list(tokens), invert=True)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [V] that excludes the banned tokens."""
        del state, position
        return tf.constant(self._allowed)


class MinimumLength(_Stateless):
    """Excludes EOS until an output has `length` tokens."""

    def __init__(self, length: int | tf.Tensor, vocab_size: int) -> None:
        self._length = length
        self._vocab_size = vocab_size

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [V] that excludes EOS, or nothing."""
        del state
        return tf.logical_or(~only(EOS, self._vocab_size), position >= self._length)


class ForcedPrefix:
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
        last = tf.shape(state)[1] - 1
        forced = tf.gather(state, tf.minimum(position, last), axis=1)[:, None, None]
        tokens = np.arange(self._vocab_size, dtype=np.float32)  # see `only`
        return tf.logical_or(forced == PAD, tf.cast(forced, tf.float32) == tokens)

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the same state: all beams of a sentence have the same prefix."""
        del parents, tokens
        return state


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

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the tokens so far [B, K, t + n - 1], and the largest counts [B].

        The first n - 1 tokens stand before the output; no others are equal to them.
        """
        most = _most_frequent(source, self._n)
        if self._prefixes is not None:
            prefixes = tf.convert_to_tensor(self._prefixes, tf.int32)
            most = tf.maximum(most, _most_frequent(prefixes, self._n))
        shape = tf.stack([tf.shape(source)[0], num_beams, self._n - 1])
        return {"tokens": tf.fill(shape, -1), "most": most}

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [B, K, V] that excludes what would be once too often."""
        del position
        tokens, most = state["tokens"], state["most"]
        shape, before = tf.shape(tokens), self._n - 1
        count = shape[2] - before  # of the n-grams so far
        # Which of them begin with the n - 1 last tokens: only their own ends count.
        is_same = tf.ones_like(tokens[:, :, before:], tf.bool)
        for i in range(before):
            last = tokens[:, :, count + i, None]
            is_same &= tokens[:, :, i : count + i] == last
        rows = tf.where(is_same)[:, :2]
        ends = tf.boolean_mask(tokens[:, :, before:], is_same)
        indices = tf.concat([rows, tf.cast(ends, tf.int64)[:, None]], axis=1)
        counts = tf.scatter_nd(
            indices,
            tf.ones_like(ends, tf.float32),
            tf.cast(tf.stack([shape[0], shape[1], self._vocab_size]), tf.int64),
        )
        return counts < most[:, None, None]

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the state with one more token."""
        before = tf.gather(state["tokens"], parents, batch_dims=1)
        return state | {"tokens": tf.concat([before, tokens[:, :, None]], axis=2)}


def _most_frequent(ids: tf.Tensor, n: int) -> tf.Tensor:
    """Returns how often the most frequent n-gram of ids [B, S] occurs, at least 1.

    EOS and PAD are in no n-gram. The result is float32 [B] (see `only`).
    """
    count = tf.maximum(tf.shape(ids)[1] - n + 1, 0)
    is_same, is_ngram = tf.constant(True), tf.constant(True)
    for i in range(n):
        tokens = ids[:, i : count + i]
        is_same &= tokens[:, :, None] == tokens[:, None, :]
        is_ngram &= (tokens != EOS) & (tokens != PAD)
    is_same &= is_ngram[:, :, None] & is_ngram[:, None, :]
    counts = tf.reduce_sum(tf.cast(is_same, tf.float32), axis=2)
    return tf.maximum(tf.reduce_max(counts, axis=1), 1.0)
