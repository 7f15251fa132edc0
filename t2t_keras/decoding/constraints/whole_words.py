"""Finds terms as whole words, with no letter or digit next to them."""

import tensorflow as tf

from t2t_keras.text.graph_ids import CPU


def whole_word_patterns(terms: tf.Tensor) -> tf.Tensor:
    """Returns regular expressions (RE2) of texts that have the terms as whole words.

    An empty term is in every text, and one that is not UTF-8 in none.

    Args:
        terms: [N] strings.
    """
    with tf.device(CPU):
        # Bytes that are not UTF-8 would make an expression that RE2 refuses.
        terms = tf.strings.unicode_transcode(terms, "UTF-8", "UTF-8")
        escaped = tf.strings.regex_replace(terms, r"[!-/:-@\[-^`{-~]", r"\\\0")
        starts_word, ends_word = tf.unstack(starts_and_ends_in_words(terms))
        left_boundary = tf.where(starts_word, r"(?:^|[^\p{L}\p{N}])", "")
        right_boundary = tf.where(ends_word, r"(?:$|[^\p{L}\p{N}])", "")
        return tf.strings.join(["(?s).*", left_boundary, escaped, right_boundary, ".*"])


def starts_and_ends_in_words(terms: tf.Tensor) -> tf.Tensor:
    """Returns whether terms [N] start and end with a letter or digit, [2, N]."""
    starts = tf.strings.regex_full_match(terms, r"(?s)[\p{L}\p{N}].*")
    stops = tf.strings.regex_full_match(terms, r"(?s).*[\p{L}\p{N}]")
    return tf.stack([starts, stops])
