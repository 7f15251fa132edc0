"""Teacher forcing of given targets: log-probabilities and attention weights."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.alignment import AlignmentHead
from t2t_keras.decoding.ensemble import DecodingModel, Ensemble
from t2t_keras.errors import UserError
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


def score_targets(
    model: DecodingModel, source: tf.Tensor, target: tf.Tensor
) -> TargetScores:
    """Computes the log-probabilities of targets, all positions at once.

    Args:
        model: the model.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD; EOS counts where it is given.
    """
    is_token = target != PAD  # [B, T]
    log_probs = tf.nn.log_softmax(model(source, target))  # [B, T, V]
    token_log_probs = tf.gather(log_probs, target, axis=2, batch_dims=2)  # [B, T]
    token_log_probs = tf.where(is_token, token_log_probs, 0.0)
    return TargetScores(
        log_probs=tf.reduce_sum(token_log_probs, axis=1),  # [B]
        lengths=tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1),  # [B]
        token_log_probs=token_log_probs,
    )


def likeliest_tokens(
    model: DecodingModel, count: int, source: tf.Tensor, target: tf.Tensor
) -> tuple[tf.Tensor]:
    """Returns the likeliest tokens at the last position of each target.

    Args:
        model: the model.
        count: the number of tokens, K.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD; the last token of each is not read.

    Returns:
        Ids [B, K] int32, the likeliest first, without PAD; K is at most V - 1.
    """
    logits = model(source, target)  # [B, T, V]
    lengths = tf.reduce_sum(tf.cast(target != PAD, tf.int32), axis=1)  # [B]
    final = tf.gather(logits, lengths - 1, batch_dims=1)  # [B, V]
    size = tf.shape(final)[1]
    final -= tf.one_hot(PAD, size, on_value=final.dtype.max, dtype=final.dtype)
    return (tf.math.top_k(final, tf.minimum(count, size - 1)).indices,)


def attention_weights(
    model: DecodingModel, head: AlignmentHead, source: tf.Tensor, target: tf.Tensor
) -> tuple[tf.Tensor]:
    """Computes the attention weights of a head, float32 [B, T, S].

    Row t belongs to the position that predicts target token t.

    Args:
        model: the model.
        head: the encoder-decoder attention.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD.

    Raises:
        UserError: the model is an ensemble.
    """
    if isinstance(model, Ensemble):
        raise UserError("alignment: an ensemble has none; take one of its runs")
    _, maps = model.decoder_outputs(source, target)
    resolved = head.of_model(model.hparams)
    assert resolved.layer is not None  # `of_model` puts it in
    weights = maps.cross[resolved.layer - 1]  # [B, H, T, S]
    if resolved.head is None:
        return (tf.reduce_mean(weights, axis=1),)  # [B, T, S]
    return (weights[:, resolved.head - 1],)  # [B, T, S]
