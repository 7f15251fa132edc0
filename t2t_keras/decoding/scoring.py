"""Scoring: the log-probabilities of given targets, by teacher forcing."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.model.transformer import Transformer
from t2t_keras.text.tokenizer import PAD


class TargetScores(NamedTuple):
    """The log-probabilities of a batch of targets.

    Attributes:
        log_probs: [B] float32, summed over the tokens, each given the earlier ones.
        lengths: [B] int32, the numbers of tokens.
        token_log_probs: [B, T] float32, of each token; 0 for padding.
    """

    log_probs: tf.Tensor
    lengths: tf.Tensor
    token_log_probs: tf.Tensor


class Score(NamedTuple):
    """The log-probability of one target.

    Attributes:
        log_prob: the log-probability of the whole target, EOS included.
        tokens: the number of tokens, EOS included.
        ids: the token ids.
        token_log_probs: the log-probability of each token, given the earlier ones.
    """

    log_prob: float
    tokens: int
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()


def score_targets(
    model: Transformer | Ensemble, source: tf.Tensor, target: tf.Tensor
) -> TargetScores:
    """Computes the log-probabilities of targets, all positions at once.

    Args:
        model: the model.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD; EOS counts where it is given.
    """
    is_token = target != PAD
    log_probs = tf.nn.log_softmax(model(source, target))
    chosen = tf.gather(log_probs, target, axis=2, batch_dims=2)
    chosen = tf.where(is_token, chosen, 0.0)
    return TargetScores(
        log_probs=tf.reduce_sum(chosen, axis=1),
        lengths=tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1),
        token_log_probs=chosen,
    )
