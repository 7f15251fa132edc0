"""tensor2tensor's vocabularies of tokens and bytes as TensorFlow operations."""

from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.text.sentences import WHITE_SPACE
from t2t_keras.text.sentences_graph import CPU, text_pieces
from t2t_keras.text.vocabulary import EOS, UNK


class TokenGraph(tf.Module):
    """`TokenTokenizer` as TensorFlow operations.

    Args:
        pieces: the tokens in the order of their ids.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        super().__init__(name="tokens")
        with tf.device(CPU), tf.init_scope():
            self._pieces = tf.constant(pieces)
            ids = tf.range(UNK, len(pieces), dtype=tf.int64)
            tokens = tf.constant(pieces[UNK:], tf.string)
            self._ids = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tokens, ids), UNK
            )

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], with EOS at the end of each row."""
        with tf.device(CPU):
            texts = tf.strings.regex_replace(texts, f"[{WHITE_SPACE}]+", " ")
            tokens = tf.strings.split(texts, " ")
            tokens = tf.ragged.boolean_mask(tokens, tokens != "")
            ids = tf.cast(self._ids.lookup(tokens.values), tf.int32)
            tokens = tokens.with_values(ids)
            return tf.concat([tokens, tf.fill([tokens.nrows(), 1], EOS)], axis=1)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            tokens = text_pieces(ids, self._pieces)
            return tf.strings.reduce_join(tokens, axis=1, separator=" ")


class ByteGraph(tf.Module):
    """`ByteTokenizer` as TensorFlow operations.

    Args:
        token_bytes: the bytes of each token; the last 256 are single bytes in order.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        super().__init__(name="bytes")
        self._first_byte_id = len(token_bytes) - 256
        with tf.device(CPU), tf.init_scope():
            self._bytes = tf.constant(token_bytes)

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], with EOS at the end of each row."""
        with tf.device(CPU):
            parts = tf.strings.bytes_split(texts)
            values = tf.io.decode_raw(parts.values, tf.uint8)[:, 0]
            values = tf.cast(values, tf.int32) + self._first_byte_id
            ids = parts.with_values(values)
            return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            parts = text_pieces(ids, self._bytes)
            texts = tf.strings.reduce_join(parts, axis=1)
            return tf.strings.unicode_transcode(
                texts, "UTF-8", "UTF-8", errors="replace"
            )
