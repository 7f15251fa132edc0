"""Label-smoothed cross-entropy (5.4), and the loss of guided alignment."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_keras.model.backend import Tensor, serializable, set_mask
from t2t_keras.model.execution import (
    BLOCK,
    column_sums,
    current_execution,
    fill_block,
)
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
    """The label-smoothed cross-entropy (5.4) for `compile`, without padding.

    See `cross_entropies`. As in Keras, the reduction "sum_over_batch_size" or "mean",
    the default, divides the weighted sum by the number of tokens, and
    "mean_with_sample_weight" divides it by the sum of the tokens' weights. Under a
    `tf.distribute` strategy each replica divides by the tokens of its own part of the
    batch, and the result is the mean over the replicas.

    Args:
        smoothing: the probability that is taken from the label.
        **kwargs: arguments of `keras.losses.Loss`.
    """

    def __init__(self, smoothing: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.smoothing = smoothing

    @property
    def dtype(self) -> str:
        """The dtype of the loss, at least float32: 16 bits round ids above 256."""
        return keras.backend.result_type(super().dtype, "float32")

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Returns the reduced loss.

        Args:
            y_true: target ids [B, T], padded with 0.
            y_pred: logits [B, T, V]; what their mask excludes counts as padding.
            sample_weight: of rows, [B] or [B, 1], or of tokens, [B, T]; None: 1.
        """
        weights = expand_weights(sample_weight, ops.ndim(y_pred) - 1)
        return super().__call__(y_true, y_pred, weights)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each token [B, T], with the mask of the tokens."""
        shape = ops.shape(y_pred)[:-1]
        labels = ops.reshape(ops.cast(y_true, "int32"), (-1,))  # [B T]
        logits = ops.reshape(y_pred, (-1, y_pred.shape[-1]))  # [B T, V]
        losses, _ = cross_entropies(logits, labels, self.smoothing)
        losses = ops.reshape(losses, shape)  # [B, T]
        set_mask(losses, ops.reshape(ops.not_equal(labels, PAD), shape))
        return losses

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        config = {"smoothing": self.smoothing, "dtype": super().dtype}
        return super().get_config() | config


def expand_weights(sample_weight: Tensor | None, rank: int) -> Tensor | None:
    """Returns the weights with axes of size 1 appended, up to the given rank.

    Without them, Keras would take weights of rows [B] for weights of positions [T].
    """
    if sample_weight is None:
        return None
    return ops.expand_dims(sample_weight, tuple(range(ops.ndim(sample_weight), rank)))


class _Forward(NamedTuple):
    """The losses, and what the gradient needs of the forward pass."""

    loss: Tensor  # the label-smoothed loss, a scalar
    nll: Tensor  # the negative log-likelihood, a scalar
    matrix: Tensor  # [V, D], the softmax matrix in the dtype of the products
    # [N, whole blocks], a multiple of the probabilities, in the dtype of the products.
    multiples: Tensor
    # Whether they are P', without the labels' probabilities.
    are_unlabeled: bool
    # [N, 1], what the multiples are to be divided by; None: by 1.
    divisor: Tensor | None
    label_probability: Tensor  # [N, 1]
    table_sums: Tensor  # [D], over the rows of the softmax matrix


def output_losses(
    states: Tensor,
    table: Tensor,
    label_rows: Tensor,
    labels: Tensor,
    weights: Tensor,
    smoothing: float,
    dtype: str,
) -> tuple[Tensor, Tensor]:
    """Projects to logits and returns the weighted sums of both `cross_entropies`.

    With P = softmax(states table^T) and the soft targets Q, the gradient of the logits
    is (P - Q) * weights. Q is u everywhere, and 1 - smoothing at the label, so

        (P - Q) table = P' table + c table[labels] - u sum(table),

    where P' is P without the labels' probabilities, and c is these, less
    1 - smoothing - u. (In 16 bits P itself, rounded, would leave little of a gradient
    that is a small difference.) The other factor of the gradient, weights, multiplies
    rows [N, D]. So the only arrays [N, V] are logits, P and P', and in 16 bits also
    logits and P in float32, from which the losses are computed.

    A GPU multiplies faster if the rows of the matrix fill whole blocks. Copies of row 0
    fill up the last block: they change no maximum, and the other probabilities are
    divided by what the copies leave.

    Args:
        states: the decoder's output, float32 [N, D].
        table: the softmax matrix, float32 [V, D].
        label_rows: its rows of the labels, float32 [N, D]: looked up by the caller,
            so that their sparse gradient is scattered with other look-ups'.
        labels: int [N]
        weights: of the rows, float32 [N]: 1, or 0 for padding.
        smoothing: the probability that is taken from the label.
        dtype: of the matrix products.

    Returns:
        The sums of the label-smoothed loss and of the negative log-likelihood, which
        has no gradient.
    """
    # TensorFlow keeps the int32 tensors of a GPU in the host's memory.
    labels = ops.cast(labels, "int64")
    weights = ops.expand_dims(weights, 1)  # [N, 1]

    @ops.custom_gradient
    def losses(
        states: Tensor, table: Tensor, label_rows: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        forward = _forward(states, table, labels, weights, smoothing, dtype)

        def grad(*upstreams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # JAX passes the gradients of both losses as one tuple.
            upstream, _ = keras.tree.flatten(upstreams)
            factor = weights * upstream  # [N, 1]
            return _gradients(forward, states, label_rows, labels, factor, smoothing)

        return (forward.loss, forward.nll), grad

    return losses(states, table, label_rows)


def _forward(
    states: Tensor,
    table: Tensor,
    labels: Tensor,
    weights: Tensor,
    smoothing: float,
    dtype: str,
) -> _Forward:
    """Computes the losses; weights are [N, 1], see `output_losses` for the others."""
    vocab_size = table.shape[0]
    u = smoothing / (vocab_size - 1)
    copies = -vocab_size % BLOCK
    matrix = ops.cast(table, dtype)
    with_copies = fill_block(matrix, matrix[:1])  # [whole blocks, D]
    logits = ops.matmul(ops.cast(states, dtype), ops.transpose(with_copies))  # [N, ..]
    label_column = ops.expand_dims(labels, 1)  # [N, 1]
    is_fused = current_execution().is_fused
    if is_fused:
        multiples, exact, reference = _fused_softmax(logits, labels, dtype)
    else:
        multiples, exact, reference = _softmax(logits, dtype)
    # [N, 1], the probability of the V tokens without the copies of row 0 that fill up
    # the last block; None without copies.
    share = None
    if copies:
        share = 1.0 - copies * _pick(exact, ops.zeros_like(label_column))  # [N, 1]
    divisor = share
    if is_fused:
        # The reference's multiple is 1.
        divisor = 1.0 / _divide(reference.probability, share)
    log_normalizer = reference.logit
    log_normalizer -= ops.log(_divide(reference.probability, share))  # [N, 1]
    label_logit = ops.cast(_pick(logits, label_column), "float32")  # [N, 1]
    table_sums = column_sums(table)  # [D]
    logit_sum = ops.matmul(states, ops.expand_dims(table_sums, 1))  # [N, 1]
    loss = log_normalizer - (1.0 - smoothing - u) * label_logit
    loss = ops.sum(weights * (loss - u * logit_sum))
    nll = ops.sum(weights * (log_normalizer - label_logit))
    return _Forward(
        loss=loss,
        nll=nll,
        matrix=matrix,
        multiples=multiples,
        are_unlabeled=is_fused,
        divisor=divisor,
        label_probability=_divide(_pick(exact, label_column), share),
        table_sums=table_sums,
    )


class _Reference(NamedTuple):
    """A logit and its probability, from which the normalizer follows."""

    logit: Tensor  # float32 [N, 1]
    probability: Tensor  # float32 [N, 1]


def _softmax(logits: Tensor, dtype: str) -> tuple[Tensor, Tensor, _Reference]:
    """Returns the probabilities in the dtype and in float32, and a reference.

    TensorFlow's kernels read the logits once for each of them.

    Args:
        logits: [N, whole blocks]
        dtype: of the products.
    """
    probabilities = ops.softmax(logits)
    exact = probabilities
    if dtype != "float32":
        exact = ops.softmax(ops.cast(logits, "float32"))
    # The largest probability is at least 1 / V, so its logarithm is exact. (XLA
    # would sort all logits for `top_k`.)
    largest = ops.max(logits, axis=-1, keepdims=True)  # [N, 1]
    probability = ops.max(exact, axis=-1, keepdims=True)  # [N, 1]
    return probabilities, exact, _Reference(ops.cast(largest, "float32"), probability)


def _fused_softmax(
    logits: Tensor, labels: Tensor, dtype: str
) -> tuple[Tensor, Tensor, _Reference]:
    """Returns what `_softmax` does, by a formula for XLA.

    It reads the logits twice, for their maximum and for the sum of exponentials. While
    it sums the exponentials, it stores them for the gradient, except at the labels.
    The probabilities in float32 are computed where they are used.
    """
    logits = ops.cast(logits, "float32")
    largest = ops.max(logits, axis=-1, keepdims=True)  # [N, 1]
    exponentials = ops.exp(logits - largest)  # [N, whole blocks]
    total = ops.sum(exponentials, axis=-1, keepdims=True)  # [N, 1]
    is_label = _one_hot(labels, logits.shape[1])  # [N, whole blocks]
    unlabeled = ops.cast(ops.where(is_label, 0.0, exponentials), dtype)
    return unlabeled, exponentials / total, _Reference(largest, 1.0 / total)


def _gradients(
    forward: _Forward,
    states: Tensor,
    label_rows: Tensor,
    labels: Tensor,
    factor: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients [N, D], [V, D], [N, D]; `factor` [N, 1] multiplies rows."""
    matrix = forward.matrix
    vocab_size = matrix.shape[0]
    u = smoothing / (vocab_size - 1)
    unlabeled = forward.multiples  # [N, whole blocks], of P'
    if not forward.are_unlabeled:
        unlabeled = _without(unlabeled, labels)
    excess = forward.label_probability - (1.0 - smoothing - u)  # c [N, 1]
    with_zeros = fill_block(matrix, ops.zeros_like(matrix[:1]))  # [whole blocks, D]
    d_states = ops.cast(ops.matmul(unlabeled, with_zeros), "float32")  # [N, D]
    d_states = _divide(d_states, forward.divisor)
    d_states += excess * label_rows
    d_states -= u * forward.table_sums

    rows = states * factor  # [N, D]
    columns = ops.transpose(ops.cast(_divide(rows, forward.divisor), matrix.dtype))
    d_table = ops.matmul(columns, unlabeled)  # [D, whole blocks]
    if unlabeled.shape[1] != vocab_size:
        d_table = d_table[:, :vocab_size]  # [D, V]
    d_table = ops.cast(ops.transpose(d_table), "float32")  # [V, D]
    d_table -= u * column_sums(rows)
    return d_states * factor, d_table, excess * rows


def _divide(x: Tensor, divisor: Tensor | None) -> Tensor:
    """Returns x [N, any] / divisor [N, 1], or x if that is None."""
    return x if divisor is None else x / divisor


def _pick(array: Tensor, ids: Tensor) -> Tensor:
    """Returns array[n, ids[n]], [N, 1]; `ops.take_along_axis` would copy the array."""
    starts = _row_numbers(ids) * array.shape[1]  # [N]
    return ops.take(ops.reshape(array, (-1,)), ops.expand_dims(starts, 1) + ids)


def _row_numbers(ids: Tensor) -> Tensor:
    """Returns 0 ... N - 1, int64 [N], for ids of N rows.

    They are counted in int32, on the host. TensorFlow's range of int64 would wait for
    the device, because it needs its limit on the host.
    """
    return ops.cast(ops.arange(ops.shape(ids)[0], dtype="int32"), "int64")


def _without(x: Tensor, ids: Tensor) -> Tensor:
    """Returns x [N, V] with zeros at x[n, ids[n]], where V is a multiple of BLOCK.

    A mask [N, V] would be two more passes over an array of its size. So only a block of
    each row is masked, [N, BLOCK], and takes the place of the block in x.
    """
    blocks = x.shape[1] // BLOCK
    block = ids // BLOCK  # [N]
    is_block = _one_hot(block, blocks)  # [N, blocks]
    is_column = _one_hot(ids % BLOCK, BLOCK)  # [N, BLOCK]
    starts = _row_numbers(ids) * blocks
    masked = ops.take(ops.reshape(x, (-1, BLOCK)), starts + block, axis=0)
    masked = ops.where(is_column, 0, masked)  # [N, BLOCK]
    x = ops.where(
        ops.expand_dims(is_block, 2),
        ops.expand_dims(masked, 1),
        ops.reshape(x, (-1, blocks, BLOCK)),
    )  # [N, blocks, BLOCK]
    return ops.reshape(x, (-1, blocks * BLOCK))


def _one_hot(ids: Tensor, size: int) -> Tensor:
    """Returns the bool one-hot vectors [N, size] of ids [N]."""
    # TensorFlow compares the int32 tensors of a GPU on the host.
    ids = ops.expand_dims(ops.cast(ids, "float32"), 1)
    return ops.equal(np.arange(size, dtype="float32"), ids)
