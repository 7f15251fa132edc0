"""The texts of parsing as TensorFlow operations, for constraint and SavedModel.

Each function does on string tensors what its namesake in Python does.
"""

import re
from collections.abc import Collection, Sequence

import tensorflow as tf

from t2t_keras.text.sentences_graph import CPU

from .linearise import UNKNOWN_TAG, UNTAGGED, Brackets
from .tree import OUTER
from .words import APOSTROPHES, DASHES, KIND_OF_TAG, OPENING, TAG_OF_MARK, WORD, rules


def treebank_texts(texts: tf.Tensor, raw: bool) -> tf.Tensor:
    """Does what `words.treebank_text` does, for sentences [B]."""
    with tf.device(CPU):
        for pattern, replacement in rules(raw):
            texts = tf.strings.regex_replace(texts, pattern, replacement)
        return texts


def restore_texts(
    sources: tf.Tensor, targets: tf.Tensor, symbols: Sequence[str]
) -> tf.Tensor:
    """Returns bracketed trees [B, n] as `linearise.restore` makes them.

    Args:
        sources: [B], words separated by single spaces.
        targets: [B, n], symbols of trees over these words, which `BalancedBrackets`
            allows. If the first one is empty, because the search found none, the result
            is the tree that `Brackets.repair` makes of no symbols: all words side by
            side. Any other empty target gives an empty tree.
        symbols: all symbols of the problem.
    """
    brackets = Brackets.from_symbols(symbols)
    labels = brackets.openers
    with tf.device(CPU):
        words = tf.strings.split(sources, " ")
        batch, n = tf.unstack(tf.shape(targets))
        repaired = _leaves(words, brackets.leaves)
        is_first = tf.range(n) == 0
        targets = tf.where((targets == "") & is_first, repaired, targets)
        targets = tf.strings.split(tf.reshape(targets, [batch * n])).to_tensor("")
        targets = tf.reshape(targets, [batch, n, tf.shape(targets)[1]])
        is_opener = _among(targets, labels)
        is_closer = _among(targets, [f"/{label}" for label in labels])
        is_leaf = ~(is_opener | is_closer | (targets == ""))
        # Each leaf gets the next word; other symbols get a word that is not used.
        word_index = tf.cumsum(tf.cast(is_leaf, tf.int32), axis=2, exclusive=True)
        word_index = tf.minimum(
            word_index, tf.cast(words.bounding_shape(1), tf.int32) - 1
        )
        if UNTAGGED in symbols:
            tags = tf.gather(mark_tags(words), word_index, batch_dims=1)
            tags = tf.where(tags == "", UNKNOWN_TAG, tags)
            targets = tf.where(targets == UNTAGGED, tags, targets)
        word = tf.gather(words.to_tensor(""), word_index, batch_dims=1)
        leaves = tf.strings.join([" (", targets, " ", word, ")"])
        openers = tf.strings.join([" (", targets])
        parts = tf.where(is_closer, ")", tf.where(is_opener, openers, ""))
        inside = tf.strings.reduce_join(tf.where(is_leaf, leaves, parts), axis=2)
        trees = tf.strings.join([f"({OUTER}", inside, ")"])
        return tf.where(inside == "", "", trees)


def _leaves(words: tf.RaggedTensor, leaves: Sequence[str]) -> tf.Tensor:
    """Returns a leaf for each word of sentences [B, (W)], as texts [B, 1].

    The leaf is the word's tag if the problem has it, otherwise the problem's first.

    Args:
        words: the words; the only one of a sentence without words is empty.
        leaves: the leaves of the problem.
    """
    tags = mark_tags(words)
    tags = tf.where(tags == "", UNKNOWN_TAG, tags)
    if leaves:
        tags = tf.where(_among(tags, leaves), tags, leaves[0])
    tags = tf.RaggedTensor.from_tensor(tags, words.row_lengths())
    texts = tf.strings.reduce_join(tags, axis=1, separator=" ")
    is_blank = tf.reduce_all(words == "", axis=1)
    return tf.where(is_blank, "", texts)[:, None]


def mark_tags(words: tf.RaggedTensor) -> tf.Tensor:
    """Does what `words.mark_tags` does, for words [B, (W)], with "" for None.

    The result is [B, W + 3]; values after the words of a sentence have no meaning.
    """
    with tf.device(CPU):
        lengths = tf.cast(words.row_lengths(), tf.int32)
        # So that there are at least three words, and a string after each.
        padded = tf.pad(words.to_tensor(""), [[0, 0], [1, 3]], constant_values="")
        words = padded[:, 1:]
        previous = padded[:, :-1]
        following = padded[:, 2:]
        following = tf.pad(following, [[0, 0], [0, 1]], constant_values="")
        tags = tf.fill(tf.shape(words), "")
        for tag in dict.fromkeys(TAG_OF_MARK.values()):
            marks = [mark for mark in TAG_OF_MARK if TAG_OF_MARK[mark] == tag]
            tags = tf.where(_among(words, marks), tag, tags)

        word_index = tf.range(tf.shape(words)[1])
        is_entry = (word_index == 1) & _are_entries(words, lengths)
        tags = tf.where(is_entry, ":", tags)

        between_digits = _matches(previous, r".*\p{Nd}") & _matches(
            following, r"\p{Nd}.*"
        )
        beside_another = (previous == ":") | (following == ":")
        inside = (word_index > 0) & (word_index < lengths[:, None] - 1)
        is_none = (words == ":") & inside & (between_digits | beside_another)
        tags = tf.where(is_none, "", tags)

        is_apostrophe = _among(words, APOSTROPHES)
        return tf.where(is_apostrophe, _apostrophes(words, previous, following), tags)


def word_kinds(words: tf.RaggedTensor) -> tf.Tensor:
    """Returns the kind WORD, MARK or BRACKET of words [B, (W)], by `mark_tags`.

    The result is int32 [B, W + 3], 0 after the last word of a sentence.
    """
    with tf.device(CPU):
        tags = mark_tags(words)
        is_word = tf.sequence_mask(words.row_lengths(), tf.shape(tags)[1])
        kinds = tf.where(is_word, WORD, 0)
        for tag, tag_kind in KIND_OF_TAG.items():
            kinds = tf.where(tags == tag, tag_kind, kinds)
        return kinds


def _are_entries(words: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns whether the words of a sentence explain an acronym, [B, 1]."""
    last_words = tf.gather(words, tf.maximum(lengths - 1, 0), batch_dims=1)
    behind_first = tf.strings.regex_replace(words[:, 0], "^.", "")
    third = words[:, 2]
    lower = tf.strings.lower(third, encoding="utf-8")
    is_entry = (
        _among(words[:, 1], DASHES)
        & (last_words != ".")
        & (behind_first != tf.strings.lower(behind_first, encoding="utf-8"))
        & (third == lower)
        & (third != tf.strings.upper(third, encoding="utf-8"))
    )
    return is_entry[:, None]


def _apostrophes(
    words: tf.Tensor, previous: tf.Tensor, following: tf.Tensor
) -> tf.Tensor:
    """Returns the tags [B, W] of apostrophes; other values have no meaning."""
    is_apostrophe = _among(words, APOSTROPHES)
    is_number = _matches(previous, r"\p{Nd}+")
    is_closing = _among(previous, (".", ",", "?", "!")) | _among(following, ("", "''"))
    # Apostrophes at least two positions later.
    count = tf.cumsum(tf.cast(is_apostrophe, tf.int32), axis=1, reverse=True)
    has_later = tf.pad(count, [[0, 0], [0, 2]])[:, 2:] > 0
    is_opening = ~_matches(previous, ".*s") & has_later

    # Whether a quotation is open after a word, if none was open before it, and if one
    # was.
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


def _among(words: tf.Tensor, choices: Collection[str]) -> tf.Tensor:
    """Returns which words are among the given ones."""
    return _matches(words, "|".join(map(re.escape, choices)))


def _matches(words: tf.Tensor, pattern: str) -> tf.Tensor:
    """Returns which words match a pattern."""
    return tf.strings.regex_full_match(words, pattern)
