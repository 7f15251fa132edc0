"""The automaton that finds phrases in UTF-8 text, built by TensorFlow's operations."""

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.constraints.whole_words import starts_and_ends_in_words

MATCHED = 1  # the state after a phrase

# The first bytes, in UTF-8, of characters that belong to no word: the blocks Latin-1
# Supplement (its first half), General Punctuation, and CJK Symbols.
_PUNCTUATION = (b"\xc2", b"\xe2\x80", b"\xe2\x81", b"\xe3\x80")

_IS_ASCII_WORD = np.array([x < 0x80 and chr(x).isalnum() for x in range(256)])


class PhraseAutomaton:
    """Finds phrases [F], none of them empty, as whole words.

    The automaton matches N texts: the marks, which are the first bytes of punctuation,
    and the phrases. A state is a row of 1 + N (L + 1) numbers, L the longest text: 1 if
    the last character belongs to a word; then, for each text and each number of its
    bytes, 1 if the output ends with them. All are -1 after a phrase was found.
    """

    def __init__(self, phrases: tf.Tensor) -> None:
        texts = tf.concat([_PUNCTUATION, phrases], 0)  # [N]
        lengths = tf.strings.length(texts)
        max_length = tf.reduce_max(lengths)
        self._is_mark = tf.range(tf.size(texts)) < len(_PUNCTUATION)  # [N]
        self._of_marks = self._is_mark[:, None]  # [N, 1]
        self._of_phrases = ~self._is_mark[:, None]  # [N, 1]
        self._offsets = tf.range(max_length + 1)  # [L + 1]
        self._is_end = lengths[:, None] == self._offsets  # [N, L + 1]
        content = tf.io.decode_raw(texts, tf.uint8, fixed_length=max_length)
        self._content = tf.cast(content, tf.int32)  # [N, L]
        self._starts_word, ends_word = tf.unstack(starts_and_ends_in_words(texts))
        # Phrases that match whatever follows, because they end in punctuation.
        self._needs_no_boundary = self._of_phrases & ~ends_word[:, None]  # [N, 1]

        # Bytes that are in no text are equivalent if they are of the same class: ASCII
        # letters and digits, other ASCII, and all beyond ASCII. Each of the C symbols
        # is one such class, or one byte that is in a text.
        used = tf.unique(tf.reshape(self._content, [-1])).y
        self._symbols = tf.concat([[ord("a"), ord(" "), 0xFF], used], 0)  # [C]
        self._matched_bytes = tf.concat([[-1, -1, -1], used], 0)  # [C]
        is_ascii = np.arange(256) < 0x80
        classes = np.where(is_ascii, 1 - _IS_ASCII_WORD, 2).astype(np.int32)
        self._symbol_of_byte = tf.tensor_scatter_nd_update(
            classes, used[:, None], 3 + tf.range(tf.size(used))
        )  # [256]

    def tables(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the transitions, and in which states the text may end.

        Returns:
            The state to which each byte leads from each state, [states, 256] int32, or
            `MATCHED` if a phrase was found; and whether the text may end in a state,
            [states].
        """
        start = tf.zeros([1 + tf.size(self._is_end)], tf.int8)
        any_shape = tf.TensorShape([None, None])
        states, transitions = tf.while_loop(
            lambda states, transitions: tf.shape(transitions)[0] < tf.shape(states)[0],
            self._explore,
            (
                tf.stack([start, start - 1]),
                tf.zeros([0, tf.size(self._symbols)], tf.int32),
            ),
            shape_invariants=(any_shape, any_shape),
        )
        is_whole_phrase = (
            self._partial_matches(states) & self._is_end & self._of_phrases
        )
        may_end = ~tf.reduce_any(is_whole_phrase, [1, 2])
        return tf.gather(transitions, self._symbol_of_byte, axis=1), may_end

    def _explore(
        self, states: tf.Tensor, transitions: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Adds the missing rows of transitions, and the states to which they lead."""
        num_states = tf.shape(states)[0]
        successors = self._successors(states[tf.shape(transitions)[0] :])
        states, indices = tf.raw_ops.UniqueV2(
            x=tf.concat([states, successors], 0), axis=[0]
        )
        rows = tf.reshape(indices[num_states:], [-1, tf.size(self._symbols)])
        return states, tf.concat([transitions, rows], 0)

    def _partial_matches(self, states: tf.Tensor) -> tf.Tensor:
        """Returns which bytes of the texts states end with, [M, N, L + 1]."""
        return tf.reshape(states[:, 1:] == 1, [-1, *tf.unstack(tf.shape(self._is_end))])

    def _successors(self, states: tf.Tensor) -> tf.Tensor:
        """Returns the states [M * C, ...] after each symbol, for states [M, ...]."""
        in_word = states[:, 0, None] == 1  # [M, 1]
        matches = self._partial_matches(states)  # [M, N, L + 1]
        is_whole = matches & self._is_end
        is_whole_phrase = is_whole & self._of_phrases
        after_mark = tf.reduce_any(is_whole & self._of_marks, [1, 2])[:, None]  # [M, 1]
        after_phrase = tf.reduce_any(is_whole_phrase, [1, 2])[:, None]  # [M, 1]

        extended = self._extend_matches(matches, in_word)  # [M, C, N, L + 1]
        may_be_mark = tf.reduce_any(extended & self._of_marks, [2, 3])  # [M, C]
        is_letter = tf.gather(_IS_ASCII_WORD, self._symbols) | (
            (self._symbols >= 0x80) & ~after_mark
        )  # [M, C]

        is_found = after_phrase & ~is_letter & ~may_be_mark  # [M, C]
        ends_phrase = extended & self._is_end & self._needs_no_boundary
        is_found |= tf.reduce_any(ends_phrase, [2, 3])
        is_found |= states[:, 0, None] < 0
        # A whole phrase waits until it is known whether punctuation follows.
        extended |= is_whole_phrase[:, None] & may_be_mark[:, :, None, None]
        next_in_word = tf.where(may_be_mark, in_word, is_letter)  # [M, C]

        shape = [*tf.unstack(tf.shape(is_found)), tf.size(self._is_end)]
        rows = tf.concat([next_in_word[:, :, None], tf.reshape(extended, shape)], 2)
        rows = tf.cast(rows, tf.int8)  # [M, C, 1 + N (L + 1)]
        rows = tf.where(is_found[:, :, None], tf.constant(-1, tf.int8), rows)
        return tf.reshape(rows, [-1, tf.shape(states)[1]])

    def _extend_matches(self, matches: tf.Tensor, in_word: tf.Tensor) -> tf.Tensor:
        """Returns the partial matches after each symbol, [M, C, N, L + 1]."""
        in_mark = tf.reduce_any(matches & self._of_marks, [1, 2])[:, None]  # [M, 1]
        may_start = tf.where(
            self._is_mark, ~in_mark, ~(in_word & self._starts_word)
        )  # [M, N]
        starts = may_start[:, :, None] & (self._offsets == 0)  # [M, N, L + 1]
        prefixes = matches & ~self._is_end | starts
        is_next_byte = self._content == self._matched_bytes[:, None, None]  # [C, N, L]
        extended = prefixes[:, None, :, :-1] & is_next_byte  # [M, C, N, L]
        return tf.pad(extended, [[0, 0], [0, 0], [0, 0], [1, 0]])
