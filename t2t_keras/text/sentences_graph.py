"""Does what `sentences` does, with operations of TensorFlow.

The rules are the same, so Python and an exported model split and join alike.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from t2t_keras.text.sentences import (
    BLANK,
    RULES,
    WHITE_ENDS,
    WHITE_SPACE,
    WITHOUT_SPACES,
    tag_pattern,
)
from t2t_keras.text.vocabulary import EOS, PAD

# String operations do not run on accelerators, and a table must be read on its device.
CPU = "/device:CPU:0"


def text_ids_graph(ids: tf.Tensor, vocab_size: int) -> tf.RaggedTensor:
    """Selects from ids [B, T] as `tokenizer.text_ids` does."""
    ids = tf.cast(ids, tf.int32)
    ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
    return tf.ragged.boolean_mask(ids, ~ended & (ids > PAD) & (ids < vocab_size))


def text_pieces(ids: tf.Tensor, pieces: tf.Tensor) -> tf.RaggedTensor:
    """Returns the pieces, strings [B, (T)], of the `text_ids` of ids [B, T].

    The pieces of the vocabulary are strings [V].
    """
    selected = text_ids_graph(ids, pieces.shape[0])
    return tf.ragged.map_flat_values(lambda flat: tf.gather(pieces, flat), selected)


_NUMBERS = tf.TensorSpec([None], tf.int64)


def mark_sentence_ends_graph(texts: tf.Tensor) -> tf.Tensor:
    r"""Returns texts [B] with a "\n" after each sentence that another text follows.

    Nothing else is changed, but a line break of the text becomes "\n ": split at "\n",
    each part begins with the white space before it.

    Args:
        texts: [B] strings.
    """
    lines = tf.strings.split(texts, "\n")
    marked = _replaced(lines.values, RULES.initial)
    has_capital = tf.strings.regex_full_match(marked, rf"[\s\S]*{RULES.capital}[\s\S]*")
    marked = tf.where(has_capital, _replaced(marked, RULES.cased), marked)
    marked = _replaced(marked, RULES.final)
    return tf.strings.reduce_join(lines.with_values(marked), axis=1, separator="\n ")


def _replaced(texts: tf.Tensor, rules: Sequence[tuple[str, str]]) -> tf.Tensor:
    """Applies rules in order."""
    for pattern, replacement in rules:
        texts = tf.strings.regex_replace(texts, pattern, replacement)
    return texts


def split_sentences_graph(
    texts: tf.Tensor, tags: Sequence[str] = ()
) -> tf.RaggedTensor:
    """Splits texts into sentences, as `sentences.split_sentences` does.

    Args:
        texts: [B] strings.
        tags: words of which one may precede a text; all its sentences then begin with
            it.

    Returns:
        [B, (S)] strings. A text without several sentences is unchanged, also if it is
        blank.
    """
    with tf.device(CPU):
        tag, bodies = _tag_and_body(texts, tags)
        sentences = tf.strings.split(mark_sentence_ends_graph(bodies), "\n")
        stripped = tf.strings.regex_replace(sentences.values, WHITE_ENDS, "")
        sentences = sentences.with_values(stripped)
        is_blank = tf.strings.regex_full_match(stripped, BLANK)
        sentences = tf.ragged.boolean_mask(sentences, sentences.with_values(~is_blank))
        prefix = tf.where(tag != "", tag + " ", "")
        tagged = tf.gather(prefix, sentences.value_rowids()) + sentences.values
        has_several = sentences.row_lengths() > 1
        several = tf.ragged.boolean_mask(sentences.with_values(tagged), has_several)
        unsplit = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(texts, ~has_several),
            tf.ones_like(tf.boolean_mask(sentences.row_lengths(), ~has_several)),
        )
        groups = tf.cast(has_several, tf.int32)
        order = tf.argsort(tf.argsort(groups, stable=True))
        return tf.gather(tf.concat([unsplit, several], axis=0), order)


def _tag_and_body(texts: tf.Tensor, tags: Sequence[str]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the tags of texts, "" where there is none, and the rest of the texts."""
    if not tags:
        return tf.zeros_like(texts), texts
    pattern = tag_pattern(tags)
    bodies = tf.strings.regex_replace(texts, pattern, "")
    lengths = tf.strings.length(texts) - tf.strings.length(bodies)
    prefix = tf.strings.substr(texts, tf.zeros_like(lengths), lengths)
    return tf.strings.regex_replace(prefix, WHITE_ENDS, ""), bodies


def split_long_text_graph(
    text: tf.Tensor,
    encode: Callable[[tf.Tensor], tf.RaggedTensor],
    max_tokens: int,
    tags: Sequence[str] = (),
) -> tf.RaggedTensor:
    """Splits a text into parts of at most `max_tokens` tokens.

    Args:
        text: a scalar string.
        encode: the tokenizer: maps strings [N] to ids [N, (T)], each row ending in EOS.
        max_tokens: the largest number of tokens in a part, EOS included; at least 2.
        tags: words of which one may precede the text; every part then begins with it.

    Returns:
        The ids of the parts [P, (T)], each row ending in EOS. No part is blank.
    """
    with tf.device(CPU):
        tag = tf.zeros([0], tf.int32)
        tag_text, bodies = _tag_and_body(text[tf.newaxis], tags)
        if tags:
            tag = encode(tag_text)[0, :-1]
        sentences = tf.strings.split(mark_sentence_ends_graph(bodies)[0], "\n")
        marked = tf.strings.regex_replace(sentences, f"([{WHITE_SPACE}]+)", "\n" r"\1")
        words = tf.strings.split(marked, "\n")  # [sentences, (words)]
        # The tokenizers' words imply a space before them.
        ids = encode(tf.strings.regex_replace(words.values, r"\A ", ""))[:, :-1]
        limit = tf.cast(tf.maximum(max_tokens - 1 - tf.size(tag), 1), tf.int64)
        bounds = _part_bounds(ids.row_lengths(), words.row_splits, limit)
        parts = tf.RaggedTensor.from_row_splits(words.values, bounds)
        parts = tf.strings.reduce_join(parts, axis=1)
        ids = encode(tf.strings.regex_replace(parts, WHITE_ENDS, ""))[:, :-1]
        # A word that is too long is cut; so is a part that has more tokens than its
        # words, which a tokenizer may make of other white space than single spaces.
        positions = tf.ragged.range(ids.row_lengths()).values
        starts = tf.where(positions % limit == 0)[:, 0]
        rows = tf.RaggedTensor.from_row_starts(ids.values, starts)
        eos = tf.fill([rows.nrows(), 1], EOS)
        tag = tf.repeat(tag[tf.newaxis], rows.nrows(), axis=0)
        return tf.concat([tag, rows, eos] if tags else [rows, eos], axis=1)


@tf.function(
    input_signature=[_NUMBERS, _NUMBERS, tf.TensorSpec([], tf.int64)], autograph=False
)
def _part_bounds(
    counts: tf.Tensor, sentence_starts: tf.Tensor, max_tokens: tf.Tensor
) -> tf.Tensor:
    """Groups words into parts.

    Args:
        counts: [W] int64, the number of tokens in each word.
        sentence_starts: [N + 1] int64, the words before which a sentence begins; and W.
        max_tokens: the largest number of tokens in a part.

    Returns:
        [P + 1] int64: part p has the words from bounds[p] to bounds[p + 1].
    """
    total = tf.concat([[0], tf.cumsum(counts)], 0)  # the tokens before each word

    def last_index(values: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
        """Returns the index of the last of increasing values that is not larger."""
        return tf.searchsorted(values, [bound], "right", out_type=tf.int64)[0] - 1

    def add(bounds: tf.Tensor) -> tuple[tf.Tensor]:
        start = bounds[-1]
        fitting = last_index(total, total[start] + max_tokens)
        sentence_end = sentence_starts[last_index(sentence_starts, fitting)]
        word_end = tf.maximum(fitting, start + 1)
        stop = tf.where(sentence_end > start, sentence_end, word_end)
        return (tf.concat([bounds, [stop]], 0),)

    (bounds,) = tf.while_loop(
        lambda bounds: bounds[-1] < sentence_starts[-1],
        add,
        (tf.zeros([1], tf.int64),),
        shape_invariants=(tf.TensorShape([None]),),
    )
    return bounds


def join_outputs_graph(outputs: tf.RaggedTensor) -> tf.Tensor:
    """Joins the outputs [B, (P)] for the parts of texts to texts [B].

    There is a space between two outputs, unless the first one ends in a character of
    Chinese or Japanese. Empty outputs are left out. No output has a line break.
    """
    with tf.device(CPU):
        texts = tf.strings.reduce_join(outputs, axis=1, separator="\n")
        texts = tf.strings.regex_replace(texts, r"\A\n+|\n+\z", "")
        texts = tf.strings.regex_replace(texts, f"([{WITHOUT_SPACES}])\n+", r"\1")
        return tf.strings.regex_replace(texts, "\n+", " ")
