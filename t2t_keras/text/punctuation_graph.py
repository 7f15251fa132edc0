"""The tags of punctuation marks in the TensorFlow graph."""

from collections.abc import Collection

import tensorflow as tf

from t2t_keras.text.graph_ids import CPU
from t2t_keras.text.punctuation import (
    APOSTROPHES,
    BRACKET,
    DASHES,
    KIND_OF_TAG,
    MARK,
    OPENING,
    TAG_OF_MARK,
    WORD,
)


class PunctuationGraph(tf.Module):
    """`mark_tags` and `word_kinds` as TensorFlow operations."""

    def __init__(self) -> None:
        super().__init__(name="punctuation")
        with tf.device(CPU), tf.init_scope():
            self._tag_of_mark = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    list(TAG_OF_MARK), list(TAG_OF_MARK.values())
                ),
                default_value="",
            )

    def tags(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Returns the tags of words [B, (W)]: strings [B, W + 3], empty where None."""
        with tf.device(CPU):
            lengths = tf.cast(words.row_lengths(), tf.int32)
            # So that three words are there, and something after each.
            padded = tf.pad(words.to_tensor(""), [[0, 0], [1, 3]], constant_values="")
            words, before, after = padded[:, 1:], padded[:, :-1], padded[:, 2:]
            after = tf.pad(after, [[0, 0], [0, 1]], constant_values="")
            tags = self._tag_of_mark.lookup(words)

            is_second = tf.range(tf.shape(words)[1]) == 1
            tags = tf.where(is_second & _are_entries(words, lengths), ":", tags)

            numbers = _matches(before, r".*\p{Nd}") & _matches(after, r"\p{Nd}.*")
            beside_another = (before == ":") | (after == ":")
            place = tf.range(tf.shape(words)[1])
            inside = (place > 0) & (place < lengths[:, None] - 1)
            is_none = (words == ":") & inside & (numbers | beside_another)
            tags = tf.where(is_none, "", tags)

            is_apostrophe = _among(words, APOSTROPHES)
            return tf.where(is_apostrophe, _apostrophes(words, before, after), tags)

    def kinds(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Returns the kinds of words [B, (W)]: int32 [B, W + 3], 0 after the last."""
        with tf.device(CPU):
            tags = self.tags(words)
            is_word = tf.sequence_mask(words.row_lengths(), tf.shape(tags)[1])
            kinds = tf.where(is_word, WORD, 0)
            for kind in (MARK, BRACKET):
                some = [tag for tag in KIND_OF_TAG if KIND_OF_TAG[tag] == kind]
                kinds = tf.where(_among(tags, some), kind, kinds)
            return kinds


def _are_entries(words: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns [B, 1]: the words explain an acronym."""
    last = tf.gather(words, tf.maximum(lengths - 1, 0), batch_dims=1)
    behind_first = tf.strings.regex_replace(words[:, 0], "^.", "")
    third = words[:, 2]
    lower = tf.strings.lower(third, encoding="utf-8")
    is_entry = (
        _among(words[:, 1], DASHES)
        & (last != ".")
        & (behind_first != tf.strings.lower(behind_first, encoding="utf-8"))
        & (third == lower)
        & (third != tf.strings.upper(third, encoding="utf-8"))
    )
    return is_entry[:, None]


def _apostrophes(words: tf.Tensor, before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    """Returns what the tags [B, W] of apostrophes are; of other words, anything."""
    is_apostrophe = _among(words, APOSTROPHES)
    is_number = _matches(before, r"\p{Nd}+")
    is_closing = _among(before, (".", ",", "?", "!")) | _among(after, ("", "''"))
    # Those that are two places further right, or more.
    count = tf.cumsum(tf.cast(is_apostrophe, tf.int32), axis=1, reverse=True)
    has_later = tf.pad(count, [[0, 0], [0, 2]])[:, 2:] > 0
    is_opening = ~_matches(before, ".*s") & has_later

    # Whether a quotation is open after a word, if there was none before, and if so.
    is_mark = is_apostrophe & ~is_number
    if_closed = _among(words, OPENING) | (is_mark & (is_closing | is_opening))
    if_open = ~is_mark
    is_open = tf.scan(
        lambda state, step: tf.where(state, step[1], step[0]),
        (tf.transpose(if_closed), tf.transpose(if_open)),
        initializer=tf.zeros(tf.shape(words)[:1], tf.bool),
    )
    was_open = tf.pad(tf.transpose(is_open), [[0, 0], [1, 0]])[:, :-1]
    tags = tf.where(is_opening, "``", "")
    tags = tf.where(was_open | is_closing, "''", tags)
    return tf.where(is_number, "", tags)


def _among(words: tf.Tensor, some: Collection[str]) -> tf.Tensor:
    """Tells which words are among some."""
    return tf.reduce_any(words[..., None] == tf.constant(sorted(some)), axis=-1)


def _matches(words: tf.Tensor, pattern: str) -> tf.Tensor:
    """Tells which words match a pattern."""
    return tf.strings.regex_full_match(words, pattern)
