"""Forbidden phrases: no output contains them as whole words."""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.constraints.phrase_automaton import MATCHED, PhraseAutomaton
from t2t_keras.model.backend import Nest
from t2t_keras.text.graph_ids import CPU
from t2t_keras.text.tokenizer import EOS


class ForbiddenPhrases:
    """Excludes phrases, however they are split into tokens; see `ForbiddenTables`."""

    def __init__(self, allowed: tf.Tensor, transitions: tf.Tensor) -> None:
        self._allowed = allowed
        self._transitions = transitions

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the automaton's first state for all hypotheses, [B, K]."""
        return tf.zeros(tf.stack([tf.shape(source)[0], num_beams]), tf.int32)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns which tokens are allowed, [B, K, V]."""
        del position
        nothing_forbidden = tf.shape(self._allowed)[0] == 1
        return tf.cond(
            nothing_forbidden,
            lambda: self._allowed[None],
            lambda: tf.gather(self._allowed, state),
        )

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the states after a step."""
        state = tf.gather(state, parents, batch_dims=1)
        return tf.gather_nd(self._transitions, tf.stack([state, tokens], 2))


class ForbiddenTables:
    """Makes, in the graph, the tables of an automaton that excludes phrases.

    A phrase is excluded as a sequence of whole words: where no letter or digit precedes
    it and none follows. All characters beyond ASCII count as letters, except those of
    the blocks of punctuation. The automaton reads the bytes of the output.

    Args:
        token_bytes: for each id, what the token adds to the output's text.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        # The prefixes of all tokens form a trie. Each of its levels, one for each
        # length, has the index of each prefix's parent in the level above, and the
        # byte that follows the parent.
        self._levels: list[tuple[np.ndarray, np.ndarray]] = []
        prefixes = {text[:i] for text in token_bytes for i in range(len(text) + 1)}
        ordered = sorted(prefixes, key=len)
        indices = {prefix: i for i, prefix in enumerate(ordered)}
        level_start = 0
        for _, group in itertools.groupby(ordered[1:], len):
            level = list(group)
            parents = [indices[prefix[:-1]] - level_start for prefix in level]
            following = [prefix[-1] for prefix in level]
            self._levels.append(
                (np.array(parents, np.int32), np.array(following, np.int32))
            )
            level_start = indices[level[0]]
        self._indices = np.array([indices[text] for text in token_bytes], np.int32)

    def __call__(self, phrases: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the tables for phrases [N] strings; empty ones are ignored.

        Returns:
            Which tokens are allowed in each of the states, [states, V], and the state
            after each token, [states, V] int32. The first state is 0.
        """
        vocab_size = len(self._indices)
        with tf.device(CPU):
            return tf.cond(
                tf.reduce_any(phrases != ""),
                lambda: self._tables(tf.boolean_mask(phrases, phrases != "")),
                lambda: (
                    tf.ones([1, vocab_size], tf.bool),
                    tf.zeros([1, vocab_size], tf.int32),
                ),
            )

    def _tables(self, phrases: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the tables for phrases [F], none of them empty."""
        transitions, may_end = PhraseAutomaton(phrases).tables()
        transitions_size = tf.shape(transitions)[0]
        flat_transitions = tf.reshape(transitions, [-1])
        states = tf.range(transitions_size)[:, None]  # after the empty prefix
        after_prefixes = [states]
        for parents, following in self._levels:
            parent_states = tf.gather(states, parents, axis=1)  # [states, prefixes]
            states = tf.gather(flat_transitions, parent_states * 256 + following)
            after_prefixes.append(states)
        after_tokens = tf.gather(tf.concat(after_prefixes, 1), self._indices, axis=1)
        is_eos = tf.range(len(self._indices)) == EOS  # [V]
        allowed = tf.where(is_eos, may_end[:, None], after_tokens != MATCHED)
        return allowed, tf.where(allowed, after_tokens, 0)


# Cached, because the trie of a large vocabulary takes seconds.
forbidden_tables = functools.lru_cache(maxsize=4)(ForbiddenTables)
