"""Teacher forcing: how probable a model finds given targets."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.model.transformer import Transformer
from t2t_keras.text.tokenizer import PAD


class TargetScores(NamedTuple):
    """What a model thinks of target sequences.

    Attributes:
        piece_log_probs: [B, T] float32, of each piece given those before; 0 at PAD.
        log_probs: [B] float32, their sums.
        lengths: [B] int32, number of pieces.
    """

    piece_log_probs: tf.Tensor
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
        piece_log_probs=chosen,
        log_probs=tf.reduce_sum(chosen, axis=1),
        lengths=tf.reduce_sum(tf.cast(is_piece, tf.int32), axis=1),
    )
