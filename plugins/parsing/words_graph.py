"""The word-level tokenizer as TensorFlow operations."""

from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.text.sentences_graph import CPU, text_pieces
from t2t_keras.text.vocabulary import EOS, UNK

from .words import ENDINGS, SHAPE, SPECIAL, ending_pattern

# The table returns this for an unknown word.
_NONE = -1


class WordGraph(tf.Module):
    """`WordTokenizer` as TensorFlow operations.

    Args:
        pieces: the tokens in the order of their ids.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        super().__init__(name="words")
        words = tf.constant(pieces[len(SPECIAL) :], tf.string)
        with tf.device(CPU), tf.init_scope():
            self._pieces = tf.constant(pieces)
            ids = tf.range(len(SPECIAL), len(pieces), dtype=tf.int64)
            self._ids = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(words, ids), _NONE
            )

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], each row ending in EOS."""
        with tf.device(CPU):
            words = tf.strings.split(texts, " ")
            words = tf.ragged.boolean_mask(words, words != "")
            ids = words.with_values(self._lookup(words.values))
            return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)

    def _lookup(self, words: tf.Tensor) -> tf.Tensor:
        """Returns the ids [N] of words [N], as `WordTokenizer.word_id` does."""
        shape = words
        for pattern, letter in SHAPE:
            shape = tf.strings.regex_replace(shape, pattern, letter)
        ids = self._ids.lookup(words)
        for length in ENDINGS:
            pattern = ending_pattern(length)
            ending = tf.strings.regex_replace(words, f"^{pattern}$", r"\1")
            classes = tf.strings.join(["<", shape, "-", ending, ">"])
            has_ending = tf.strings.regex_full_match(words, pattern)
            is_missing = (ids == _NONE) & has_ending
            ids = tf.where(is_missing, self._ids.lookup(classes), ids)
        classes = tf.strings.join(["<", shape, ">"])
        ids = tf.where(ids == _NONE, self._ids.lookup(classes), ids)
        return tf.cast(
            tf.where(ids == _NONE, tf.constant(UNK, tf.int64), ids), tf.int32
        )

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            words = text_pieces(ids, self._pieces)
            return tf.strings.reduce_join(words, axis=1, separator=" ")
