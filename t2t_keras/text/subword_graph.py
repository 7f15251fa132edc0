"""tensor2tensor's subwords in the TensorFlow graph."""

import sys
from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text

from t2t_keras.text.graph_ids import CPU, text_ids
from t2t_keras.text.subword import UNDEFINED
from t2t_keras.text.tokenizer import EOS

_SPACE, _UNDERLINE, _BACKSLASH = map(ord, " _\\")


class SubwordGraph(tf.Module):
    """`SubwordTokenizer` as TensorFlow operations.

    Args:
        pieces: the piece of every id.
        alphabet: the characters that need no escape.
    """

    def __init__(self, pieces: Sequence[str], alphabet: Collection[str]) -> None:
        super().__init__(name="subwords")
        self._alphabet = np.array(sorted(map(ord, alphabet)), np.int32)
        self._word_bounds = _word_bounds()
        ids = {piece: i for i, piece in enumerate(pieces) if piece}
        with tf.device(CPU), tf.init_scope():
            self._pieces = tf.constant(pieces)
            # WordPiece takes the longest piece that fits, too. Its mark for pieces
            # inside a word is empty here, for tensor2tensor marks a word's end. A
            # string that is no id's own (empty, or said again later) must fit nowhere.
            self._spell = tensorflow_text.FastWordpieceTokenizer(
                [
                    piece if ids.get(piece) == i else f"\n{i}"
                    for i, piece in enumerate(pieces)
                ]
                + ["\n"],
                suffix_indicator="",
                unknown_token="\n",
                no_pretokenization=True,
                max_bytes_per_word=np.iinfo(np.int32).max,
                token_out_type=tf.int32,
            )

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], each row ending in EOS."""
        with tf.device(CPU):
            tokens = self._escape(self._split(texts))
            ids = self._spell.tokenize(tokens).merge_dims(1, 2)
            return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            pieces = tf.ragged.map_flat_values(
                lambda flat: tf.gather(self._pieces, flat),
                text_ids(ids, len(self._pieces)),
            )
            tokens = tf.strings.split(tf.strings.reduce_join(pieces, axis=1), "_")
            tokens = tf.ragged.boolean_mask(tokens, tokens != "")
            return self._join(tokens.with_values(_unescape(tokens.values)))

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Cuts texts [B] into tokens: code points [B, (tokens), (characters)]."""
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        is_word = self._is_word(codes.values)
        # A token begins where a text begins and where the kind of character changes.
        changes = tf.concat([[True], is_word[1:] != is_word[:-1]], axis=0)
        is_start = changes[: tf.size(is_word)] | _is_first(codes)
        starts = tf.where(is_start)[:, 0]
        rows = tf.gather(codes.value_rowids(), starts)
        tokens = tf.RaggedTensor.from_row_starts(codes.values, starts)
        tokens = tf.RaggedTensor.from_value_rowids(tokens, rows, codes.nrows())
        # A single space is implied, but at the start and at the end.
        is_space = (tokens.values.row_lengths() == 1) & (
            tf.gather(codes.values, starts) == _SPACE
        )
        dropped = is_space & ~_is_first(tokens) & ~_is_last(tokens)
        return tf.ragged.boolean_mask(tokens, tokens.with_values(~dropped))

    def _escape(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Spells tokens with the alphabet: code points -> strings [B, (tokens)]."""
        codes = tokens.flat_values
        place = tf.searchsorted(self._alphabet, codes)
        nearest = tf.gather(self._alphabet, tf.minimum(place, len(self._alphabet) - 1))
        characters = tf.where(
            nearest == codes,
            tf.strings.unicode_encode(codes[:, None], "UTF-8"),
            tf.strings.join(["\\", tf.strings.as_string(codes), ";"]),
        )
        characters = tf.where(codes == _BACKSLASH, "\\\\", characters)
        characters = tf.where(codes == _UNDERLINE, "\\u", characters)
        words = tokens.values.with_values(characters)
        words = tf.strings.reduce_join(words, axis=1)
        return tokens.with_values(tf.strings.join([words, "_"]))

    def _join(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        """Joins tokens [B, (tokens)] with a space between two words."""
        first_codes = tf.strings.unicode_decode(tokens.values, "UTF-8")[:, :1].values
        is_word = self._is_word(first_codes)
        after_word = tf.concat([[False], is_word[:-1]], axis=0)[: tf.size(is_word)]
        spaced = is_word & after_word & ~_is_first(tokens)
        texts = tf.where(spaced, tf.strings.join([" ", tokens.values]), tokens.values)
        return tf.strings.reduce_join(tokens.with_values(texts), axis=1)

    def _is_word(self, codes: tf.Tensor) -> tf.Tensor:
        """Tells which code points are letters or numbers."""
        bounds_before = tf.searchsorted(self._word_bounds, codes, side="right")
        return bounds_before % 2 == 1


def _word_bounds() -> np.ndarray:
    """Returns where letters and numbers begin and end among the code points.

    From Python's own Unicode tables, for those of TensorFlow are of another version.
    """
    is_word = [chr(code).isalnum() for code in range(sys.maxunicode + 1)]
    return np.flatnonzero(np.diff(is_word, prepend=False, append=False)).astype(
        np.int32
    )


def _is_first(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Tells which of the values [N] are the first of their row."""
    rows = ragged.value_rowids()
    return tf.concat([[True], rows[1:] != rows[:-1]], axis=0)[: tf.size(rows)]


def _is_last(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Tells which of the values [N] are the last of their row."""
    rows = ragged.value_rowids()
    return tf.concat([rows[1:] != rows[:-1], [True]], axis=0)[: tf.size(rows)]


def _unescape(tokens: tf.Tensor) -> tf.Tensor:
    """Undoes the escapes in tokens [N], which contain no "_"."""
    parts = tf.strings.regex_replace(tokens, r"\\u|\\\\|\\[0-9]+;", r"_\0_")
    parts = tf.strings.split(parts, "_")
    values = parts.values
    is_number = tf.strings.regex_full_match(values, r"\\[0-9]+;")
    digits = tf.strings.regex_replace(values, r"\\0*([0-9]+);", r"\1")
    is_short = is_number & (tf.strings.length(digits) <= 7)
    code = tf.strings.to_number(tf.where(is_short, digits, "1114112"), tf.int32)
    is_character = (code < 0x110000) & ((code < 0xD800) | (code >= 0xE000))
    code = tf.where(is_character, code, ord(UNDEFINED))
    characters = tf.strings.unicode_encode(code[:, None], "UTF-8")
    values = tf.where(is_number, characters, values)
    values = tf.where(values == "\\\\", "\\", values)
    values = tf.where(values == "\\u", "_", values)
    return tf.strings.reduce_join(parts.with_values(values), axis=1)
