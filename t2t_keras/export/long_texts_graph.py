"""Splits texts that are too long, and joins their outputs, in an exported graph.

It does what `decoding.long_inputs` does in Python.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.hypotheses import Hypotheses, length_penalties
from t2t_keras.decoding.long_inputs import splits_long_inputs
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.text.sentences import join_outputs, split_long_text, split_sentences
from t2t_keras.text.tokenizer import EOS, PAD, GraphTokenizer
from t2t_keras.text_processor import TextProcessor


class SourceRows(NamedTuple):
    """The R rows that are searched for B texts.

    Attributes:
        ids: [R, S] int32; a blank text is a row of PAD, whose output is empty.
        texts: [R] strings, the same sources.
        owners: [R] int64, the text of which each row is a part, in increasing order.
        is_truncated: [B], whether the texts were truncated.
    """

    ids: tf.Tensor
    texts: tf.Tensor
    owners: tf.Tensor
    is_truncated: tf.Tensor


class TextSplitter:
    """Encodes texts and splits or truncates them.

    Args:
        tokenizer: the source tokenizer.
        text_processor: the text processor.
        options: the options of the export.

    Attributes:
        may_split: whether a text may have several rows.
    """

    def __init__(
        self,
        tokenizer: GraphTokenizer,
        text_processor: TextProcessor,
        options: DecodingOptions,
    ) -> None:
        self._tokenizer = tokenizer
        self._tags = text_processor.tags
        self._options = options
        self._splits_long_inputs = splits_long_inputs(text_processor, options)
        self.may_split = self._splits_long_inputs or options.split_sentences

    def split(self, texts: tf.Tensor, is_blank: tf.Tensor) -> SourceRows:
        """Returns the rows for texts [B], some of which may be blank [B]."""
        if not self._options.split_sentences:
            return self._split_long(texts, is_blank)
        sentences = split_sentences(texts, self._tags)  # [B, (sentences)]
        owners = sentences.value_rowids()
        rows = self._split_long(sentences.values, tf.gather(is_blank, owners))
        is_truncated = tf.math.unsorted_segment_max(
            tf.cast(rows.is_truncated, tf.int32), owners, sentences.nrows()
        )
        return rows._replace(
            owners=tf.gather(owners, rows.owners), is_truncated=is_truncated > 0
        )

    def _split_long(self, texts: tf.Tensor, is_blank: tf.Tensor) -> SourceRows:
        """Does what `split` does, but splits only what is too long."""
        max_length = self._options.max_source_length
        ids, is_long = encode(self._tokenizer, texts, max_length)
        ids = tf.where(is_blank[:, None], PAD, ids)
        is_long &= ~is_blank
        indices = tf.range(tf.size(texts, tf.int64))
        if not self._splits_long_inputs:
            return SourceRows(ids, texts, indices, is_long)
        long_indices = tf.boolean_mask(indices, is_long)
        short_indices = tf.boolean_mask(indices, ~is_long)
        parts = tf.map_fn(
            lambda text: split_long_text(
                text, self._tokenizer.encode, max_length, self._tags
            ),
            tf.gather(texts, long_indices),
            fn_output_signature=tf.RaggedTensorSpec(
                [None, None], tf.int32, ragged_rank=1, row_splits_dtype=tf.int64
            ),
        )  # [long texts, (parts), (tokens)]
        owners_of_parts = tf.gather(long_indices, parts.value_rowids())
        owners = tf.concat([short_indices, owners_of_parts], 0)
        order = tf.argsort(owners, stable=True)
        short_ids = tf.RaggedTensor.from_tensor(tf.gather(ids, short_indices))
        all_ids = tf.concat([short_ids, parts.values], axis=0)
        part_texts = self._tokenizer.decode(parts.values.to_tensor(PAD))
        all_texts = tf.concat([tf.gather(texts, short_indices), part_texts], 0)
        return SourceRows(
            tf.gather(all_ids, order).to_tensor(PAD),
            tf.gather(all_texts, order),
            tf.gather(owners, order),
            tf.zeros_like(is_long),
        )


def encode(
    tokenizer: GraphTokenizer, texts: tf.Tensor, max_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns ids [B, S], truncated if too long, and which ones are truncated [B]."""
    rows = tokenizer.encode(texts)  # [B, (S)]
    lengths = tf.cast(rows.row_lengths(), tf.int32)
    is_long = lengths > max_length  # [B]
    ids = rows.to_tensor(PAD, shape=[None, max_length])[:, : tf.reduce_max(lengths)]
    is_last = tf.range(tf.shape(ids)[1]) == max_length - 1  # [S]
    return tf.where(is_long[:, None] & is_last, EOS, ids), is_long


def join_rows(
    targets: tf.Tensor,
    hypotheses: Hypotheses,
    owners: tf.Tensor,
    alpha: tf.Tensor,
    options: DecodingOptions,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins the targets for the parts of texts.

    Args:
        targets: [R, n] strings.
        hypotheses: the hypotheses that they are from.
        owners: [R], the text of which each row is a part, in increasing order.
        alpha: [B], the exponent of each text's length penalty.
        options: the options of the export.

    Returns:
        The targets [B, n] of the texts, and their scores [B, n].
    """
    size = tf.size(alpha, tf.int64)

    def total(values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(values, owners, size)

    def penalty(lengths: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
        return length_penalties(lengths, alpha[:, None], options.length_penalty)

    log_probs = total(hypotheses.log_probs)  # [B, n]
    lengths = total(hypotheses.lengths)  # [B, n]
    joined_scores = log_probs / penalty(lengths, alpha)
    row_alpha = tf.gather(alpha, owners)  # [R]
    penalties = penalty(hypotheses.lengths, row_alpha)  # [R, n]
    coverage = total(hypotheses.scores - hypotheses.log_probs / penalties)
    joined_scores += tf.where(tf.math.is_inf(log_probs), 0.0, coverage)
    is_split = total(tf.ones_like(owners)) > 1  # [B]
    scores = tf.where(is_split[:, None], joined_scores, total(hypotheses.scores))

    ranks = tf.shape(targets, tf.int64)[1]
    by_rank = tf.range(ranks)[:, None] * size + owners  # [n, R]
    parts = tf.RaggedTensor.from_value_rowids(
        tf.reshape(tf.transpose(targets), [-1]), tf.reshape(by_rank, [-1]), ranks * size
    )
    texts = tf.transpose(tf.reshape(join_outputs(parts), [ranks, size]))  # [B, n]
    # A rank that one of the parts does not have is left out, but there is always one.
    is_left_out = tf.math.is_inf(scores) & (tf.range(ranks) > 0)
    return tf.where(is_left_out, "", texts), scores
