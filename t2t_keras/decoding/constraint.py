"""Constraints: which tokens beam search and sampling may generate."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from t2t_keras.model.backend import Nest


class Constraint(Protocol):
    """Rules out continuations during beam search or sampling.

    A constraint has a state, any nest of tensors whose first axis is the batch: when
    sentences leave the batch, the search selects the rows of the others. So whatever
    differs between sentences belongs to the state. The constraint makes the state from
    the source, tells at every step which tokens each beam may take, and updates the
    state when the beams are reordered and extended. Excluding tokens does not change
    the log-probabilities of the others: a constraint restricts the search and not the
    model, so scores are still those of teacher forcing.
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
