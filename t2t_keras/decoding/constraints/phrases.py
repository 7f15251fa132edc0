"""The glossary and the forbidden phrases of a request, as inputs of the graph."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import tensorflow as tf

from t2t_keras.decoding.constraints.forbidden_phrases import forbidden_tables
from t2t_keras.decoding.constraints.whole_words import whole_word_patterns
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.text.protected import find_protected, protected_pattern
from t2t_keras.text.tokenizer import PAD, Tokenizer


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
            ids = [row[:-1] for row in tokenizer.encode_batch(targets)]
            terms = tf.ragged.constant(ids, tf.int32, ragged_rank=1, inner_shape=())
            patterns = whole_word_patterns(tf.constant(sources))
            glossary = patterns, terms.to_tensor(PAD)
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


def protected_parts(
    texts: tf.Tensor, names: Sequence[str], pieces: Sequence[str]
) -> tf.RaggedTensor:
    """Returns what the option `protect` protects in texts [B]: strings [B, (M)].

    Args:
        texts: the sources.
        names: the option's value.
        pieces: the tokens of the source's vocabulary.
    """
    return find_protected(texts, protected_pattern(names, pieces))
