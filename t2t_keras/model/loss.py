"""Label-smoothed cross-entropy (5.4), and that of guided alignment."""

from typing import Any

import keras
from keras import ops

from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers.base import serializable
from t2t_keras.model.layers.masks import PAD


def cross_entropies(
    logits: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Returns the cross-entropies with label-smoothed targets and with the labels.

    The smoothed target gives the label the probability 1 - smoothing, and each of the
    other V - 1 ids u = smoothing / (V - 1). As these probabilities add up to one,

        loss = logsumexp(logits) - (1 - smoothing - u) logit[label] - u sum(logits),

    which needs no array of soft targets. tensor2tensor subtracts the target's entropy,
    a constant; this function does not.

    `Transformer.training_losses` computes the same by `output_losses`, whose gradient
    is written by hand.

    Args:
        logits: float32 [N, V]
        labels: int [N]
        smoothing: the probability that is taken from the label.

    Returns:
        The label-smoothed loss [N], and the negative log-likelihood of the labels [N].
    """
    u = smoothing / (logits.shape[-1] - 1)
    log_normalizer = ops.logsumexp(logits, axis=-1)  # [N]
    at_label = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]  # [N]
    loss = log_normalizer - (1.0 - smoothing - u) * at_label
    return loss - u * ops.sum(logits, axis=-1), log_normalizer - at_label


def summed_cross_entropies(
    logits: Tensor, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Returns both `cross_entropies`, summed over the tokens, as scalars.

    The logits are [B, T, V], and the target [B, T] is padded with 0.
    """
    logits = ops.reshape(logits, (-1, logits.shape[-1]))  # [B T, V]
    loss, nll = cross_entropies(logits, ops.reshape(target, (-1,)), smoothing)
    return sum_over_tokens(loss, target), sum_over_tokens(nll, target)


def sum_over_tokens(per_token: Tensor, target: Tensor) -> Tensor:
    """Returns the sum of [B, T] values over the tokens of target [B, T]."""
    is_token = ops.cast(ops.not_equal(target, PAD), "float32")  # [B, T]
    return ops.sum(ops.reshape(per_token, ops.shape(target)) * is_token)


def count_tokens(target: Tensor) -> Tensor:
    """Returns the number of target tokens, EOS included, as float32."""
    return ops.sum(ops.cast(ops.not_equal(target, PAD), "float32"))


def alignment_loss(weights: Tensor, alignment: Tensor) -> Tensor:
    """Returns the cross-entropy of attention weights with an alignment, summed.

    Weights below 1e-9 count as 1e-9: the source's padding has the weight 0.

    Args:
        weights: of one head, float32 [B, T, S].
        alignment: [B, T, S]; the row of a target token that is linked to n source
            tokens has 1 / n for each of them, and 0 elsewhere.
    """
    return -ops.sum(alignment * ops.log(ops.maximum(weights, 1e-9)))


@serializable
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """The label-smoothed cross-entropy (5.4) for `compile`, the mean of all tokens.

    See `cross_entropies`; the other arguments are those of `keras.losses.Loss`.
    """

    def __init__(self, smoothing: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.smoothing = smoothing

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of target ids [B, T] and logits [B, T, V], a scalar."""
        target = ops.cast(y_true, "int32")
        loss, _ = summed_cross_entropies(y_pred, target, self.smoothing)
        return loss / ops.maximum(count_tokens(target), 1)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"smoothing": self.smoothing}
