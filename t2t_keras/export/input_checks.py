"""Checks of the inputs of an exported graph, as assertions in the graph."""

import tensorflow as tf

from t2t_keras.text.tokenizer import EOS, PAD


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
