"""Teacher forcing: how probable a model finds given targets."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.model.transformer import Transformer
from t2t_keras.text.tokenizer import PAD


class TargetScores(NamedTuple):
    """What a model thinks of target sequences.

    Attributes:
        log_probs: [B] float32, of all pieces, each given those before.
        lengths: [B] int32, number of pieces.
    """

    log_probs: tf.Tensor
    lengths: tf.Tensor


class Score(NamedTuple):
    """What a model thinks of one target.

    Attributes:
        log_prob: of the whole target, EOS included.
        tokens: number of pieces, EOS included.
    """

    log_prob: float
    tokens: int


def score_targets(
    model: Transformer, source: tf.Tensor, target: tf.Tensor
) -> TargetScores:
    """Computes the log-probabilities of targets, all positions at once.

    Args:
        model: the model.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD; EOS counts where it is given.
    """
    is_piece = target != PAD
    log_probs = tf.nn.log_softmax(model(source, target))
    chosen = tf.gather(log_probs, target, axis=2, batch_dims=2)
    chosen = tf.where(is_piece, chosen, 0.0)
    return TargetScores(
        log_probs=tf.reduce_sum(chosen, axis=1),
        lengths=tf.reduce_sum(tf.cast(is_piece, tf.int32), axis=1),
    )
