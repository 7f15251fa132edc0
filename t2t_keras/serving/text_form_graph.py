"""The forms of text of `decoding.text_form`, in the TensorFlow graph."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.brackets import BracketPieces
from t2t_keras.text.graph_ids import CPU
from t2t_keras.text.linearise import UNKNOWN_TAG, UNTAGGED
from t2t_keras.text.punctuation_graph import PunctuationGraph
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.tree import OUTER
from t2t_keras.text.treebank_words import rules


class TextFormGraph(Protocol):
    """How texts become sources, and pieces of the target become outputs."""

    def source_texts(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns texts [B] as the model knows them."""

    def outputs(self, texts: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the outputs [B, n] of pieces [B, n, T] for source texts [B].

        Where there are no pieces, the output is empty.
        """


class PlainTextGraph(tf.Module):
    """Text to text, as it is; a line break in an output becomes a space.

    Args:
        tokenizer: `Tokenizer.graph` of the target.
    """

    def __init__(self, tokenizer: tf.Module) -> None:
        super().__init__(name="plain_text")
        self._tokenizer = tokenizer

    def source_texts(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the texts."""
        return texts

    def outputs(self, texts: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the decoded texts [B, n] of pieces [B, n, T]."""
        batch, n, length = tf.unstack(tf.shape(ids))
        texts = self._tokenizer.decode(tf.reshape(ids, [batch * n, length]))
        return tf.reshape(tf.strings.regex_replace(texts, "\n", " "), [batch, n])


class TreesGraph(tf.Module):
    """Words to a bracketed tree with the words in it, as `restore_text` makes it.

    For undamaged symbols only: those that `BalancedBrackets` allows.

    Args:
        symbols: the problem's.
        tokenizer: of the target.
        raw: whether sentences are raw (see `treebank_text`).
        punctuation: what tells the tags of words without one.
    """

    def __init__(
        self,
        symbols: Sequence[str],
        tokenizer: Tokenizer,
        raw: bool,
        punctuation: PunctuationGraph,
    ) -> None:
        super().__init__(name="trees")
        self._rules = rules(raw)
        self._pieces = BracketPieces.of(symbols, tokenizer)
        self._symbols = np.full(tokenizer.vocab_size, "", object)
        for symbol in symbols:
            self._symbols[tokenizer.encode(symbol)[0]] = symbol
        self._is_untagged = UNTAGGED in symbols
        self._punctuation = punctuation

    def source_texts(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns sentences [B] with one space between any two words."""
        with tf.device(CPU):
            for pattern, replacement in self._rules:
                texts = tf.strings.regex_replace(texts, pattern, replacement)
            return texts

    def outputs(self, texts: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the trees of pieces [B, n, T] over the words of texts [B]: [B, n]."""
        with tf.device(CPU):
            words = tf.strings.split(texts, " ")
            is_leaf = tf.gather(self._pieces.leaf, ids) > 0
            is_opener = tf.gather(self._pieces.opens, ids) > 0
            is_closer = tf.gather(self._pieces.closes, ids) > 0
            symbols = tf.gather(tf.constant(self._symbols), ids)
            # Each leaf has the next word; the others, some word that is not used.
            number = tf.cumsum(tf.cast(is_leaf, tf.int32), axis=2, exclusive=True)
            number = tf.minimum(number, tf.cast(words.bounding_shape(1), tf.int32) - 1)
            if self._is_untagged:
                tags = tf.gather(self._punctuation.tags(words), number, batch_dims=1)
                tags = tf.where(tags == "", UNKNOWN_TAG, tags)
                symbols = tf.where(symbols == UNTAGGED, tags, symbols)
            word = tf.gather(words.to_tensor(""), number, batch_dims=1)
            leaves = tf.strings.join([" (", symbols, " ", word, ")"])
            openers = tf.strings.join([" (", symbols])
            parts = tf.where(is_closer, ")", tf.where(is_opener, openers, ""))
            inside = tf.strings.reduce_join(tf.where(is_leaf, leaves, parts), axis=2)
            trees = tf.strings.join([f"({OUTER}", inside, ")"])
            return tf.where(inside == "", "", trees)
