"""What a search may generate: one hook, and the constraints everyone needs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import tensorflow as tf

from t2t_keras.backend import Nest
from t2t_keras.text.tokenizer import EOS, PAD


class Constraint(Protocol):
    """Rules out continuations during beam search or sampling.

    A constraint sees what the model sees. It makes a state from the source, says at
    every step which tokens each beam may take, and follows the beams as they are
    reordered and extended. The state is any nest of tensors. Pieces that are ruled out
    do not change the log-probabilities of the others: a constraint restricts the
    search, not the model, so scores still are those of teacher forcing.

    B is the batch, S the source length, K the number of beams, V the vocabulary.
    """

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the state before the first step, for source ids [B, S]."""

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns where a token is allowed at this position (from 0).

        The result is boolean and broadcasts to [B, K, V].
        """

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the state after a step.

        Args:
            state: before the step.
            parents: [B, K]; beam k now continues what was beam `parents[b, k]`.
            tokens: [B, K], the token that beam k took.
        """


# What `Problem.constraint` returns. From the texts [B] of the sources and the maximum
# lengths [B] of the outputs it makes the constraint of a batch, in the graph, and the
# maximum lengths, raised where nothing that is allowed would be short enough.
BatchConstraint: TypeAlias = Callable[
    [tf.Tensor, tf.Tensor], tuple[Constraint, tf.Tensor]
]


class AllOf:
    """Allows what each of several constraints allows; of none: everything."""

    def __init__(self, constraints: Iterable[Constraint] = ()) -> None:
        self._constraints = tuple(constraints)

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the state of each."""
        return tuple(part.init(source, num_beams) for part in self._constraints)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the conjunction."""
        allowed = tf.constant(True)
        for part, its_state in zip(self._constraints, state, strict=True):
            allowed = tf.logical_and(allowed, part.mask(its_state, position))
        return allowed

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Advances each."""
        return tuple(
            part.advance(its_state, parents, tokens)
            for part, its_state in zip(self._constraints, state, strict=True)
        )


class _Stateless:
    """A constraint that depends on nothing but the position."""

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the empty state."""
        del source, num_beams
        return ()

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the empty state."""
        del parents, tokens
        return state


class BannedTokens(_Stateless):
    """Never generates certain tokens."""

    def __init__(self, tokens: Iterable[int], vocab_size: int) -> None:
        banned = frozenset(tokens)
        self._allowed = [token not in banned for token in range(vocab_size)]

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns [V]: all but the banned."""
        del state, position
        return tf.constant(self._allowed)


class MinimumLength(_Stateless):
    """Never ends an output before it has so many tokens, EOS not counted."""

    def __init__(self, length: int | tf.Tensor, vocab_size: int) -> None:
        self._length = length
        self._vocab_size = vocab_size

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns [V]: all, or all but EOS."""
        del state
        return tf.logical_or(
            tf.range(self._vocab_size) != EOS, position >= self._length
        )


class ForcedPrefix:
    """Begins each output with given tokens, which may differ between sentences."""

    def __init__(
        self, prefixes: tf.Tensor | Sequence[Sequence[int]], vocab_size: int
    ) -> None:
        """Takes [B, P] ids, padded with PAD on the right; without EOS."""
        self._prefixes = tf.convert_to_tensor(prefixes, tf.int32)
        self._vocab_size = vocab_size

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the prefixes, with a column of PAD for all that comes after them."""
        del source, num_beams
        return tf.pad(self._prefixes, [[0, 0], [0, 1]], constant_values=PAD)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns [B, 1, V]: the prefix's token at this position, or all."""
        last = tf.shape(state)[1] - 1
        forced = tf.gather(state, tf.minimum(position, last), axis=1)[:, None, None]
        return tf.logical_or(forced == PAD, forced == tf.range(self._vocab_size))

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the state: every beam of a sentence has the same prefix."""
        del parents, tokens
        return state
