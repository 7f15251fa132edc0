"""The options of a request in an exported graph: one value, or one for each row.

Rows with equal options are searched together, one group after another.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from t2t_keras.decoding.hypotheses import NEG_INF, Hypotheses
from t2t_keras.decoding.options import EMPTY_PHRASES, DecodingOptions
from t2t_keras.export.input_checks import require
from t2t_keras.options import conditions
from t2t_keras.text.tokenizer import PAD

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
        require(condition, message)
        for condition, message in conditions(DecodingOptions, with_axis)
    ]
    fits = with_axis["n_best"] <= with_axis["beam_size"]
    assertions.append(require(fits, "n_best must be at most beam_size"))
    for name, value in with_axis.items():
        count = tf.shape(value, tf.int64)[0]
        message = f"{name} must have one value, or one for each row"
        assertions.append(require((count == 1) | (count == size), message))
    with tf.control_dependencies(assertions):
        return {name: tf.identity(value) for name, value in with_axis.items()}


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
