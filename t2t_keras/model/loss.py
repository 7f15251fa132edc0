"""Label-smoothed cross-entropy (5.4)."""

from keras import ops

from t2t_keras.backend import Tensor
from t2t_keras.model.transformer import PAD


def cross_entropies(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Returns the cross-entropies with label-smoothed targets and with the labels.

    The smoothed target gives the label the probability 1 - smoothing, and each of the
    other V - 1 ids u = smoothing / (V - 1). As these probabilities add up to one,

        loss = logsumexp(logits) - (1 - smoothing - u) logit[label] - u sum(logits),

    which needs no array of soft targets. tensor2tensor subtracts the target's entropy,
    a constant; this function does not. The negative log-likelihood of the label,
    logsumexp(logits) - logit[label], comes at no extra cost.

    Args:
        logits: float32 [N, V]
        labels: int [N]
        smoothing: the probability that is taken from the label.

    Returns:
        float32 [N, 2]: the label-smoothed loss, and the negative log-likelihood, which
        has no gradient.
    """
    rest = smoothing / (logits.shape[-1] - 1)

    @ops.custom_gradient
    def loss(logits: Tensor) -> tuple[Tensor, Tensor]:
        log_normaliser = ops.logsumexp(logits, axis=-1)
        at_label = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        value = log_normaliser - (1.0 - smoothing - rest) * at_label
        if smoothing:
            value = value - rest * ops.sum(logits, axis=-1)
        both = ops.stack([value, log_normaliser - at_label], axis=-1)

        def grad(upstream: Tensor) -> Tensor:
            """Returns (softmax(logits) - targets) * the loss's upstream gradient."""
            softmax = ops.exp(logits - log_normaliser[:, None])
            ids = ops.arange(logits.shape[-1])[None, :]
            is_label = ops.equal(ids, labels[:, None])
            targets = ops.where(is_label, 1.0 - smoothing, rest)
            return (softmax - targets) * upstream[:, :1]

        return both, grad

    return loss(logits)


def summed_cross_entropies(
    logits: Tensor, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Returns both cross-entropies, summed over the target tokens, as scalars.

    Args:
        logits: float32 [B, T, V]
        target: int [B, T], padded with 0.
        smoothing: see `cross_entropies`.

    Returns:
        The label-smoothed loss, and the negative log-likelihood, which has no gradient.
    """
    rows = ops.reshape(logits, (-1, logits.shape[-1]))
    per_token = cross_entropies(rows, ops.reshape(target, (-1,)), smoothing)
    return (
        sum_over_tokens(per_token[:, 0], target),
        sum_over_tokens(per_token[:, 1], target),
    )


def count_tokens(target: Tensor) -> Tensor:
    """Returns the number of target tokens, EOS included, as float32."""
    return ops.sum(ops.cast(ops.not_equal(target, PAD), "float32"))


def sum_over_tokens(per_token: Tensor, target: Tensor) -> Tensor:
    """Returns the sum of [B, T] values over the tokens of target [B, T]."""
    is_token = ops.cast(ops.not_equal(target, PAD), "float32")
    return ops.sum(ops.reshape(per_token, ops.shape(target)) * is_token)
