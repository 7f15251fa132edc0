"""Label-smoothed cross-entropy (5.4), and that of guided alignment."""

from typing import Any

import keras
from keras import ops

from t2t_keras.hparam import GUIDED_HEAD
from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers.base import serializable
from t2t_keras.model.layers.rows import to_rows
from t2t_keras.model.output_losses import output_losses
from t2t_keras.model.packing import Packing
from t2t_keras.model.transformer import PAD, Transformer


def cross_entropies(
    logits: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Returns the cross-entropies with label-smoothed targets and with the labels.

    The smoothed target gives the label the probability 1 - smoothing, and each of the
    other V - 1 ids u = smoothing / (V - 1). As these probabilities add up to one,

        loss = logsumexp(logits) - (1 - smoothing - u) logit[label] - u sum(logits),

    which needs no array of soft targets. tensor2tensor subtracts the target's entropy,
    a constant; this function does not.

    Training computes the same by `output_losses`, whose gradient is written by hand.

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


def training_losses(
    model: Transformer,
    source: Tensor,
    target: Tensor,
    seed: Tensor,
    softmax: Tensor | None = None,
    alignment: Tensor | None = None,
    packing: Packing | None = None,
    first_row: int | Tensor = 0,
) -> tuple[Tensor, Tensor]:
    """Runs the model and returns `summed_cross_entropies` of its logits.

    The negative log-likelihood has no gradient. Guided alignment adds its gradient to
    that of the label-smoothed loss, and nothing to the value, which stays comparable.

    Args:
        model: its hparams have the label smoothing.
        source: int32 [B, S]
        target: int32 [B, T]
        seed: [2], of dropout.
        softmax: the softmax matrix [V, D], for its gradient without that of the
            embedding if they are one; None: the model's.
        alignment: [B, T, S], see `alignment_loss`; None: without guided alignment.
        packing: see `Transformer.decoder_outputs`.
        first_row: likewise.
    """
    decoded, maps = model.decoder_outputs(source, target, seed, packing, first_row)
    rows = to_rows(decoded)  # [B T, D]
    labels = to_rows(target)  # [B T]
    table = model.softmax_embedding.table  # [V, D]
    # The look-up precedes the reshape, whose gradient would be dense.
    label_rows = ops.take(table, labels, axis=0)  # [B T, D]
    # A custom gradient refuses variables.
    table = ops.reshape(table, table.shape)
    softmax = table if softmax is None else softmax
    if model.output_bias is not None:
        # The bias is one more column, which multiplies a 1 at the end of each row.
        bias = ops.expand_dims(ops.convert_to_tensor(model.output_bias), 1)  # [V, 1]
        softmax = ops.concatenate([softmax, bias], axis=1)  # [V, D + 1]
        rows = ops.concatenate([rows, ops.ones_like(rows[:, :1])], axis=1)
        label_bias = ops.take(bias, labels, axis=0)  # [B T, 1]
        label_rows = ops.concatenate([label_rows, label_bias], axis=1)
    loss, nll = output_losses(
        rows,
        softmax,
        label_rows,
        labels,
        ops.cast(ops.not_equal(labels, PAD), "float32"),
        model.hparams.label_smoothing,
        model.compute_dtype,
    )
    if alignment is not None:
        layer_scores = maps.cross[model.hparams.alignment_layer - 1]  # [B, H, T, S]
        head = layer_scores[:, GUIDED_HEAD - 1]  # [B, T, S]
        guide = model.hparams.guided_alignment * alignment_loss(head, alignment)
        # This adds the gradient and leaves the value.
        loss += guide - ops.stop_gradient(guide)
    return loss, nll


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
