"""The tokenizers of tensor2tensor and Marian as TensorFlow operations."""

import sys
from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text

from t2t_keras.text.sentence_piece_graph import sentence_piece_op
from t2t_keras.text.sentences import WHITE_SPACE
from t2t_keras.text.sentences_graph import CPU, text_ids_graph, text_pieces
from t2t_keras.text.vocabulary import EOS, UNK

from .t2t.subwords import SYMBOL_END, SYMBOL_MARK, SYMBOL_START, UNDEFINED, spellings

_SPACE = ord(" ")
_UNDERSCORE = ord("_")
_BACKSLASH = ord("\\")


class SubwordGraph(tf.Module):
    """`SubwordTokenizer` as TensorFlow operations.

    Args:
        pieces: the pieces in the order of their ids.
        alphabet: the characters that are not escaped.
        symbols: words that are always one piece.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        alphabet: Collection[str],
        symbols: Sequence[str] = (),
    ) -> None:
        super().__init__(name="subwords")
        self._alphabet = np.array(sorted(map(ord, alphabet)), np.int32)
        self._word_bounds = _word_bounds()
        ids = {piece: i for i, piece in enumerate(pieces) if piece}
        with tf.device(CPU), tf.init_scope():
            self._pieces = tf.constant(spellings(pieces))
            self._symbols = tf.constant(symbols, tf.string) if symbols else None
            # An empty or repeated piece is replaced by a string that matches nothing.
            wordpieces = [
                piece if ids.get(piece) == i else f"\n{i}"
                for i, piece in enumerate(pieces)
            ]
            # WordPiece also takes the longest matching piece. Its prefix of pieces
            # inside a word is empty here, because tensor2tensor marks a word's end.
            self._spell = tensorflow_text.FastWordpieceTokenizer(
                [*wordpieces, "\n"],
                suffix_indicator="",
                unknown_token="\n",
                no_pretokenization=True,
                max_bytes_per_word=np.iinfo(np.int32).max,
                token_out_type=tf.int32,
            )

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], with EOS at the end of each row."""
        with tf.device(CPU):
            if self._symbols is None:
                tokens = self._escape(self._split(texts))
            else:
                tokens = self._split_at_symbols(texts)
            ids = self._spell.tokenize(tokens).merge_dims(1, 2)
            return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            pieces = text_pieces(ids, self._pieces)
            tokens = tf.strings.split(tf.strings.reduce_join(pieces, axis=1), "_")
            tokens = tf.ragged.boolean_mask(tokens, tokens != "")
            return self._join(
                tokens.with_values(_unescape(tokens.values)),
                tf.strings.substr(tokens.values, 0, 1) == SYMBOL_MARK,
            )

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts [B] into tokens: code points [B, (tokens), (characters)]."""
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        is_word = self._is_word(codes.values)
        # A token starts with a text, and where letters or numbers meet others.
        is_start = _changes(is_word) | _is_first(codes)
        starts = tf.where(is_start)[:, 0]
        rows = tf.gather(codes.value_rowids(), starts)
        tokens = tf.RaggedTensor.from_row_starts(codes.values, starts)
        tokens = tf.RaggedTensor.from_value_rowids(tokens, rows, codes.nrows())
        # A single space is implied, except at the start and at the end.
        is_space = (tokens.values.row_lengths() == 1) & (
            tf.gather(codes.values, starts) == _SPACE
        )
        dropped = is_space & ~_is_first(tokens) & ~_is_last(tokens)
        return tf.ragged.boolean_mask(tokens, tokens.with_values(~dropped))

    def _escape(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Escapes tokens: code points to strings [B, (tokens)]."""
        codes = tokens.flat_values
        index = tf.searchsorted(self._alphabet, codes)
        nearest = tf.gather(self._alphabet, tf.minimum(index, len(self._alphabet) - 1))
        characters = tf.where(
            nearest == codes,
            tf.strings.unicode_encode(codes[:, None], "UTF-8"),
            tf.strings.join(["\\", tf.strings.as_string(codes), ";"]),
        )
        characters = tf.where(codes == _BACKSLASH, "\\\\", characters)
        characters = tf.where(codes == _UNDERSCORE, "\\u", characters)
        words = tokens.values.with_values(characters)
        words = tf.strings.reduce_join(words, axis=1)
        return tokens.with_values(tf.strings.join([words, "_"]))

    def _split_at_symbols(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts [B] into escaped tokens and symbols [B, (tokens)]."""
        words = tf.strings.split(texts, " ")
        is_symbol = tf.reduce_any(words.values[:, None] == self._symbols, axis=1)
        after_symbol = _shift(is_symbol)
        # A part is a symbol, or all words up to the next symbol.
        is_start = is_symbol | after_symbol | _is_first(words)
        starts = tf.where(is_start)[:, 0]
        rows = tf.gather(words.value_rowids(), starts)
        # reduce_join's own separator is missing after an empty word.
        spaced = tf.strings.join([" ", words.values])
        parts = tf.RaggedTensor.from_row_starts(spaced, starts)
        parts = tf.strings.substr(tf.strings.reduce_join(parts, axis=1), 1, -1)
        is_symbol = tf.gather(is_symbol, starts)
        spelled = self._escape(self._split(tf.where(is_symbol, "", parts)))
        pieces = tf.strings.join([SYMBOL_START, parts, SYMBOL_END])
        symbols = tf.ragged.boolean_mask(pieces[:, None], is_symbol[:, None])
        tokens = tf.concat([spelled, symbols], axis=1)
        by_text = tf.RaggedTensor.from_value_rowids(tokens, rows, words.nrows())
        return by_text.merge_dims(1, 2)

    def _join(self, tokens: tf.RaggedTensor, is_symbol: tf.Tensor) -> tf.Tensor:
        """Joins tokens [B, (tokens)] with a space between words and around symbols."""
        values = tf.strings.substr(tokens.values, 1, -1)
        values = tf.where(is_symbol, values, tokens.values)
        first_codes = tf.strings.unicode_decode(tokens.values, "UTF-8")[:, :1].values
        is_word = self._is_word(first_codes)
        spaced = (is_word & _shift(is_word)) | is_symbol | _shift(is_symbol)
        spaced &= ~_is_first(tokens)
        texts = tf.where(spaced, tf.strings.join([" ", values]), values)
        return tf.strings.reduce_join(tokens.with_values(texts), axis=1)

    def _is_word(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns which code points are letters or numbers."""
        num_bounds = tf.searchsorted(self._word_bounds, codes, side="right")
        return num_bounds % 2 == 1


def _word_bounds() -> np.ndarray:
    """Returns the code points at which ranges of letters and numbers start and stop.

    They come from Python's Unicode tables, because TensorFlow's version differs.
    """
    is_word = [chr(code).isalnum() for code in range(sys.maxunicode + 1)]
    changes = np.diff(is_word, prepend=False, append=False)
    return np.flatnonzero(changes).astype(np.int32)


def _shift(flags: tf.Tensor) -> tf.Tensor:
    """Returns, for each position [N], the flag of the previous position."""
    return tf.concat([[False], flags[:-1]], axis=0)[: tf.size(flags)]


def _changes(values: tf.Tensor) -> tf.Tensor:
    """Returns which of the values [N] differ from the previous one; the first does."""
    return tf.concat([[True], values[1:] != values[:-1]], axis=0)[: tf.size(values)]


def _is_first(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Returns which of the values [N] are the first in their row."""
    return _changes(ragged.value_rowids())


def _is_last(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Returns which of the values [N] are the last in their row."""
    return _changes(ragged.value_rowids()[::-1])[::-1]


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


class TokenGraph(tf.Module):
    """`TokenTokenizer` as TensorFlow operations.

    Args:
        pieces: the tokens in the order of their ids.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        super().__init__(name="tokens")
        with tf.device(CPU), tf.init_scope():
            self._pieces = tf.constant(pieces)
        self._ids = _token_ids(pieces)

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], with EOS at the end of each row."""
        with tf.device(CPU):
            texts = tf.strings.regex_replace(texts, f"[{WHITE_SPACE}]+", " ")
            tokens = tf.strings.split(texts, " ")
            tokens = tf.ragged.boolean_mask(tokens, tokens != "")
            return _with_eos(tokens, self._ids)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            tokens = text_pieces(ids, self._pieces)
            return tf.strings.reduce_join(tokens, axis=1, separator=" ")


def _token_ids(pieces: Sequence[str]) -> tf.lookup.StaticHashTable:
    """Returns a table of the ids of tokens without the special ones; else UNK."""
    with tf.device(CPU), tf.init_scope():
        ids = tf.range(UNK + 1, len(pieces), dtype=tf.int64)
        tokens = tf.constant(pieces[UNK + 1 :], tf.string)
        initializer = tf.lookup.KeyValueTensorInitializer(tokens, ids)
        return tf.lookup.StaticHashTable(initializer, UNK)


def _with_eos(
    tokens: tf.RaggedTensor, table: tf.lookup.StaticHashTable
) -> tf.RaggedTensor:
    """Turns tokens [B, (T)] into ids [B, (T)], with EOS at the end of each row."""
    ids = tokens.with_values(tf.cast(table.lookup(tokens.values), tf.int32))
    return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)


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


class MarianGraph(tf.Module):
    """`MarianTokenizer` as TensorFlow operations.

    Args:
        model: the content of the `.marian` file.
        pieces: the tokens in the order of their ids.
    """

    def __init__(self, model: bytes, pieces: Sequence[str]) -> None:
        super().__init__(name="marian")
        self._tokenizer = sentence_piece_op(model, tf.string)
        self._vocab_size = len(pieces)
        self._ids = _token_ids(pieces)

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], with EOS at the end of each row."""
        with tf.device(CPU):
            tokens = self._tokenizer.tokenize(texts)
            return _with_eos(tokens, self._ids)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            tokens = text_ids_graph(ids, self._vocab_size)
            tokens = tf.ragged.boolean_mask(tokens, tokens != UNK)
            texts = self._tokenizer.detokenize(tokens)
            return tf.strings.regex_replace(texts, r"\A +| +\z", "")
