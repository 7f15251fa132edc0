"""Hypotheses: the outputs of beam search and sampling, with their scores."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.length_penalty import length_penalty
from t2t_keras.decoding.options import LengthPenalty

NEG_INF = float("-inf")  # log-probability of an empty beam slot


class Hypotheses(NamedTuple):
    """The hypotheses for a batch, best first.

    If a sentence has fewer than n, its other slots have no ids, length 0 and score
    -inf.

    Attributes:
        ids: [B, n, T] int32, ending in EOS unless cut off, then padded with PAD.
        scores: [B, n] float32, the log-probabilities divided by the length penalty,
            plus the coverage penalty if there is one.
        log_probs: [B, n] float32, summed over the tokens.
        lengths: [B, n] int32, numbers of tokens, EOS included.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


def length_penalties(
    lengths: tf.Tensor, alpha: float | tf.Tensor, formula: LengthPenalty
) -> tf.Tensor:
    """Returns `length_penalty` of integer lengths, float32; slots may be empty."""
    lengths = tf.cast(lengths, tf.float32)
    if formula != "gnmt":
        lengths = tf.maximum(lengths, 1.0)
    return length_penalty(lengths, alpha, formula)
