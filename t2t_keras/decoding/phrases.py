"""Phrases that outputs must or must not have, as inputs of the graph.

A glossary gives the translations of terms, forbidden phrases occur in no output as
whole words, and protected parts (addresses, markup, numbers) are kept as they are. The
patterns are regular expressions of RE2, so that Python and an exported model run the
same code.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import tensorflow as tf

from t2t_keras.decoding.forbidden_phrases import (
    forbidden_tables,
    starts_and_ends_in_words,
)
from t2t_keras.decoding.options import KINDS, UNKNOWN, DecodingOptions
from t2t_keras.text.sentences import WHITE_SPACE
from t2t_keras.text.sentences_graph import CPU
from t2t_keras.text.tokenizer import Tokenizer, padded_rows


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


def protected_parts(
    texts: tf.Tensor, kinds: Sequence[str], pieces: Sequence[str]
) -> tf.RaggedTensor:
    """Returns what the option `protect` protects in texts, in their order.

    Where two kinds begin at the same place, the one that `KINDS` has first wins.

    Args:
        texts: [B] strings, the sources.
        kinds: the option's value, names in `KINDS` or `UNKNOWN`.
        pieces: the tokens of the source's vocabulary.

    Returns:
        [B, (M)] strings.
    """
    patterns = [KINDS[name] for name in KINDS if name in kinds]
    if UNKNOWN in kinds:
        codes = sorted({ord(character) for character in "".join(pieces)})
        characters = "".join(rf"\x{{{code:X}}}" for code in codes)
        patterns.append(f"[^{characters}{WHITE_SPACE}]+")
    pattern = "|".join(patterns)
    with tf.device(CPU):
        texts = tf.strings.regex_replace(texts, "[\x00\x01]", " ")
        marked = tf.strings.regex_replace(texts, f"({pattern})", "\x00\\1\x01")
        # Each part but the first begins with something that was found.
        parts = tf.strings.split(marked, "\x00")[:, 1:]
        protected = tf.strings.regex_replace(parts.values, "(?s)\x01.*", "")
        return parts.with_values(protected)


class Phrases(NamedTuple):
    """The glossary and the forbidden phrases of a request.

    They are inputs of the decoding graph: other phrases need no new trace.

    Attributes:
        glossary: regular expressions of the source terms, [N] strings, and the ids of
            the target terms without EOS, [N, L] int32, padded with PAD; or nothing.
        forbidden: the tables of `ForbiddenTables`, or nothing.
    """

    glossary: tuple[tf.Tensor, ...]
    forbidden: tuple[tf.Tensor, ...]

    @classmethod
    def from_options(cls, options: DecodingOptions, tokenizer: Tokenizer) -> Self:
        """Returns the phrases of options, for a target tokenizer."""
        glossary: tuple[tf.Tensor, ...] = ()
        if options.glossary:
            sources, targets = zip(*options.glossary, strict=True)
            ids = padded_rows([row[:-1] for row in tokenizer.encode_batch(targets)])
            patterns = whole_word_patterns(tf.constant(sources))
            glossary = patterns, tf.constant(ids)
        forbidden: tuple[tf.Tensor, ...] = ()
        if options.forbidden:
            tables = forbidden_tables(tuple(tokenizer.token_bytes()))
            forbidden = tables(tf.constant(options.forbidden))
        return cls(glossary, forbidden)

    def required(self, texts: tf.Tensor, copied: tf.Tensor | None) -> tf.Tensor:
        """Returns the phrases that the outputs must contain, [B, M, L] int32.

        The glossary must have at least one term.

        Args:
            texts: [B] strings, the sources, B > 0.
            copied: [B, any, any] int32, the ids of further phrases, padded with PAD.
        """
        patterns, terms = self.glossary
        occurs = tf.map_fn(
            lambda pattern: tf.strings.regex_full_match(texts, pattern),
            patterns,
            fn_output_signature=tf.TensorSpec([None], tf.bool),
        )  # [N, B]
        occurs = tf.cast(tf.transpose(occurs), tf.int32)  # [B, N]
        max_terms = tf.reduce_max(tf.reduce_sum(occurs, axis=1))
        matches = tf.math.top_k(occurs, max_terms)  # equals keep their order
        phrases = tf.gather(terms, matches.indices) * matches.values[:, :, None]
        if copied is None:
            return phrases
        width = tf.maximum(tf.shape(phrases)[2], tf.shape(copied)[2])
        padded = [_pad_phrases(phrases, width), _pad_phrases(copied, width)]
        return tf.concat(padded, axis=1)


def _pad_phrases(phrases: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Returns phrases [B, M, L], padded to L = width."""
    return tf.pad(phrases, [[0, 0], [0, 0], [0, width - tf.shape(phrases)[2]]])
