"""The inputs of an exported graph: checks, options for each row, long texts.

Rows with equal options are searched together, one group after another.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.checking import conditions, describe_limits
from t2t_keras.decoding.inputs import splits_long_inputs
from t2t_keras.decoding.options import EMPTY_PHRASES, DecodingOptions
from t2t_keras.decoding.search_loop import NEG_INF, Hypotheses, length_penalties
from t2t_keras.options import limits_of
from t2t_keras.problem import TextProcessor
from t2t_keras.text.sentences_graph import (
    join_outputs_graph,
    split_long_text_graph,
    split_sentences_graph,
)
from t2t_keras.text.tokenizer import GraphTokenizer
from t2t_keras.text.vocabulary import EOS, PAD


def require(condition: tf.Tensor, message: str) -> tf.Operation:
    """Returns the operation that raises the message unless all elements are true.

    `tf.debugging.Assert` would add the message to the graph twice.
    """
    return tf.raw_ops.Assert(condition=tf.reduce_all(condition), data=[message])


def checked_ids(
    ids: tf.Tensor, vocab_size: int, name: str, *, needs_eos: bool
) -> tf.Tensor:
    """Returns a user's ids [B, S], after a check.

    Args:
        ids: the ids.
        vocab_size: number of ids in the vocabulary.
        name: the name of the input.
        needs_eos: whether each row must end in EOS.
    """
    lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)  # [B]
    is_token = tf.sequence_mask(lengths, tf.shape(ids)[1])  # [B, S]
    assertions = [
        require(
            (ids >= 0) & (ids < vocab_size),
            f"{name} must be from 0 to {vocab_size - 1}, as the vocabulary has",
        ),
        require(
            (ids != PAD) == is_token,
            f"{name} {PAD} (padding) may only follow the last token of a row",
        ),
    ]
    if needs_eos:
        # With EOS before each row, an empty row ends in EOS as well.
        shifted = tf.pad(ids, [[0, 0], [1, 0]], constant_values=EOS)  # [B, 1 + S]
        final_ids = tf.gather(shifted, lengths, axis=1, batch_dims=1)  # [B]
        message = f"each row of {name} must end in {EOS} (EOS), then {PAD} (padding)"
        assertions.append(require(final_ids == EOS, message))
    with tf.control_dependencies(assertions):
        return tf.identity(ids)


def checked_pairs(
    sources: tf.Tensor, targets: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the two sides of pairs, after a check of their numbers."""
    are_pairs = tf.shape(sources)[0] == tf.shape(targets)[0]
    message = "sources and targets must be of equal length: row by row they are pairs"
    with tf.control_dependencies([require(are_pairs, message)]):
        return tf.identity(sources), tf.identity(targets)


# Searches some rows, given their indices and the options that they share.
SearchRows = Callable[[tf.Tensor, Mapping[str, tf.Tensor]], Hypotheses]


def checked_options(
    options: Mapping[str, tf.Tensor], size: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns options with a first axis of 1 or B, after a check.

    Args:
        options: the options: numbers are scalars or [B], phrases have an axis more.
        size: the number of texts B, int64.
    """
    with_axis = {
        name: value if name in EMPTY_PHRASES else tf.reshape(value, [-1])
        for name, value in options.items()
    }
    assertions = [
        require(condition, message) for condition, message in _conditions(with_axis)
    ]
    fits = with_axis["n_best"] <= with_axis["beam_size"]
    assertions.append(require(fits, "n_best must be at most beam_size"))
    for name, value in with_axis.items():
        count = tf.shape(value, tf.int64)[0]
        message = f"{name} must have one value, or one for each row"
        assertions.append(require((count == 1) | (count == size), message))
    with tf.control_dependencies(assertions):
        return {name: tf.identity(value) for name, value in with_axis.items()}


def _conditions(options: Mapping[str, tf.Tensor]) -> Iterator[tuple[tf.Tensor, str]]:
    """Yields the conditions on numbers among the options, with their messages."""
    for field in dataclasses.fields(DecodingOptions):
        if field.name not in options:
            continue
        value = options[field.name]
        if field.type is float:  # the comparison is false for NaN as well
            yield abs(value) < math.inf, f"{field.name} must be a finite number"
        limits = limits_of(field)
        for condition in conditions(limits, value):
            yield condition, f"{field.name} must be {describe_limits(limits)}"


def search_groups(
    options: Mapping[str, tf.Tensor], owners: tf.Tensor, search_rows: SearchRows
) -> Hypotheses:
    """Searches the rows of each group of equal options.

    Args:
        options: what `checked_options` returned.
        owners: [R] int64, the text to which each row belongs.
        search_rows: searches the rows of a group.
    """
    keys = [
        tf.gather(_keys(value), _indices(value, owners)) for value in options.values()
    ]
    unique_keys, groups = tf.unique(tf.strings.join(keys, ","))  # [G], [R]

    def search_group(group: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        rows = tf.where(groups == group)[:, 0]
        shared = {
            name: value[_indices(value, owners)[rows[0]]]
            for name, value in options.items()
        }
        hypotheses = search_rows(rows, shared)
        scores = tf.stack([hypotheses.scores, hypotheses.log_probs], 2)
        return (
            tf.RaggedTensor.from_tensor(hypotheses.ids, ragged_rank=2),
            tf.RaggedTensor.from_tensor(scores, ragged_rank=1),
        )

    # The numbers of outputs and of tokens differ between groups.
    ids_spec = tf.RaggedTensorSpec([None] * 3, tf.int32, 2, tf.int64)
    scores_spec = tf.RaggedTensorSpec([None, None, 2], tf.float32, 1, tf.int64)
    ids_of_groups, scores_of_groups = tf.map_fn(
        search_group,
        tf.range(tf.size(unique_keys)),
        fn_output_signature=(ids_spec, scores_spec),
    )
    order = tf.argsort(tf.argsort(groups, stable=True))
    ids = tf.gather(ids_of_groups.merge_dims(0, 1).to_tensor(PAD), order)
    scores = tf.gather(scores_of_groups.merge_dims(0, 1).to_tensor(NEG_INF), order)
    lengths = tf.math.count_nonzero(ids, axis=2, dtype=tf.int32)
    # Without rows, the last axis got lost.
    scores = tf.reshape(scores, tf.concat([tf.shape(ids)[:2], [2]], 0))
    return Hypotheses(ids, scores[:, :, 0], scores[:, :, 1], lengths)


def _keys(value: tf.Tensor) -> tf.Tensor:
    """Returns strings [N], equal where the values [N, ...] of an option are equal."""
    if value.dtype != tf.string:
        # All bits of a number, without the loop that phrases need.
        return tf.strings.as_string(tf.bitcast(value, tf.int32))
    text = tf.TensorSpec([], tf.string)
    return tf.map_fn(tf.io.serialize_tensor, value, fn_output_signature=text)


def _indices(value: tf.Tensor, owners: tf.Tensor) -> tf.Tensor:
    """Returns the index in an option of the value of each row."""
    return tf.minimum(owners, tf.shape(value, tf.int64)[0] - 1)


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
        sentences = split_sentences_graph(texts, self._tags)  # [B, (sentences)]
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
            lambda text: split_long_text_graph(
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
    texts = tf.transpose(tf.reshape(join_outputs_graph(parts), [ranks, size]))  # [B, n]
    # A rank that one of the parts does not have is left out, but there is always one.
    is_left_out = tf.math.is_inf(scores) & (tf.range(ranks) > 0)
    return tf.where(is_left_out, "", texts), scores
