"""Label-smoothed cross-entropy (5.4)."""

from typing import Any

from keras import ops

from t2t_keras.model.transformer import PAD


def cross_entropies(logits: Any, labels: Any, smoothing: float) -> Any:
    """Cross-entropy to targets of 1 - smoothing on the label, the rest spread evenly.

    Each of the other V - 1 ids gets u = smoothing / (V - 1). As the probabilities of
    the targets add up to one,

        loss = logsumexp(logits) - (1 - smoothing - u) logit[label] - u sum(logits),

    which needs no array of soft targets. tensor2tensor subtracts the entropy of the
    targets, a constant; here it is left in. The negative log-likelihood of the label,
    logsumexp(logits) - logit[label], costs nothing beside it.

    Args:
        logits: float32 [N, V]
        labels: int [N]
        smoothing: the mass taken from the label.

    Returns:
        float32 [N, 2]: the label-smoothed loss, and the negative log-likelihood, which
        has no gradient.
    """
    rest = smoothing / (logits.shape[-1] - 1)

    @ops.custom_gradient
    def loss(logits: Any) -> tuple[Any, Any]:
        log_normaliser = ops.logsumexp(logits, axis=-1)
        at_label = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        value = log_normaliser - (1.0 - smoothing - rest) * at_label
        if smoothing:
            value = value - rest * ops.sum(logits, axis=-1)
        both = ops.stack([value, log_normaliser - at_label], axis=-1)

        def grad(upstream: Any) -> Any:
            """softmax(logits) - targets, times the upstream gradient of the loss."""
            softmax = ops.exp(logits - log_normaliser[:, None])
            ids = ops.arange(logits.shape[-1])[None, :]
            is_label = ops.equal(ids, labels[:, None])
            targets = ops.where(is_label, 1.0 - smoothing, rest)
            return (softmax - targets) * upstream[:, :1]

        return both, grad

    return loss(logits)


def summed_cross_entropies(
    logits: Any, target: Any, smoothing: float
) -> tuple[Any, Any]:
    """Returns both cross-entropies, scalars, summed over the tokens of target.

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


def count_tokens(target: Any) -> Any:
    """Returns the number of target tokens, EOS included, as float32."""
    return ops.sum(ops.cast(ops.not_equal(target, PAD), "float32"))


def sum_over_tokens(per_token: Any, target: Any) -> Any:
    """Returns the sum of [B, T] values over the tokens of target [B, T]."""
    is_token = ops.cast(ops.not_equal(target, PAD), "float32")
    return ops.sum(ops.reshape(per_token, ops.shape(target)) * is_token)
