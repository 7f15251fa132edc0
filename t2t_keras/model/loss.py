"""Label-smoothed cross-entropy (5.4), and that of guided alignment.

The gradient of the output layer is written by hand, because automatic differentiation
keeps several arrays of the size of the logits; see `output_losses`.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras.hparam import GUIDED_HEAD
from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers import BLOCK, fill_block, serializable
from t2t_keras.model.transformer import PAD, Transformer


def training_losses(
    model: Transformer,
    source: Tensor,
    target: Tensor,
    seed: Tensor,
    softmax: Tensor | None = None,
    alignment: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Runs the model and returns `summed_cross_entropies` of its logits.

    The gradient is written by hand, and the logits stay inside of it.

    Args:
        model: whose `hparams.label_smoothing` counts.
        source: int32 [B, S]
        target: int32 [B, T]
        seed: [2], of dropout.
        softmax: the softmax matrix [V, D], for its gradient without that of the
            embedding if they are one; None: the model's.
        alignment: [B, T, S], see `alignment_loss`; None: without guided alignment.

    Returns:
        The label-smoothed loss, and the negative log-likelihood, which has no gradient.
        Guided alignment adds its gradient to that of the loss, and nothing to the
        value, which stays comparable.
    """
    states, maps = model.decoder_outputs(source, target, seed)
    rows = ops.reshape(states, (-1, model.hparams.d_model))
    labels = ops.reshape(target, (-1,))
    table = model.softmax_embedding.table
    # Looked up before the reshape, whose gradient is dense.
    label_rows = ops.take(table, labels, axis=0)
    table = ops.reshape(table, table.shape)  # a custom gradient refuses variables
    softmax = table if softmax is None else softmax
    if model.output_bias is not None:  # one more column, whose state is 1
        bias = ops.expand_dims(ops.convert_to_tensor(model.output_bias), 1)
        softmax = ops.concatenate([softmax, bias], axis=1)
        rows = ops.concatenate([rows, ops.ones_like(rows[:, :1])], axis=1)
        label_bias = ops.take(bias, labels, axis=0)
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
        head = maps.cross[model.hparams.alignment_layer - 1][:, GUIDED_HEAD - 1]
        guide = model.hparams.guided_alignment * alignment_loss(head, alignment)
        loss += guide - ops.stop_gradient(guide)  # 0, but for the gradient
    return loss, nll


def _column_sums(x: Tensor) -> Tensor:
    """Returns the sums [n] over the rows of x [N, n], as a matrix product.

    It is several times faster than `ops.sum` on a CPU, whose order of summation also
    depends on the number of threads.
    """
    ones = ops.ones((1, ops.shape(x)[0]), x.dtype)
    return ops.reshape(ops.matmul(ones, x), (-1,))


def _without(x: Tensor, ids: Tensor) -> Tensor:
    """Returns x [N, V] with zeros at x[n, ids[n]], where V is a multiple of BLOCK.

    A mask [N, V] would be two more passes over an array of its size. So only a block of
    each row is masked, [N, BLOCK], and takes the place of the block in x.

    Args:
        x: [N, V]
        ids: int64 [N]
    """
    blocks = x.shape[1] // BLOCK
    block, place = ids // BLOCK, ids % BLOCK
    # A GPU compares integers on the host.
    is_block, is_place = (
        ops.equal(
            np.arange(size, dtype="float32"),
            ops.expand_dims(ops.cast(index, "float32"), 1),
        )
        for index, size in ((block, blocks), (place, BLOCK))
    )
    starts = ops.arange(ops.shape(ids)[0], dtype="int64") * blocks
    masked = ops.take(ops.reshape(x, (-1, BLOCK)), starts + block, axis=0)
    masked = ops.where(is_place, 0, masked)
    others = ops.where(
        ops.expand_dims(is_block, 2),
        ops.expand_dims(masked, 1),
        ops.reshape(x, (-1, blocks, BLOCK)),
    )
    return ops.reshape(others, (-1, blocks * BLOCK))


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
    logits and P in float32, from which the losses are computed: beside the matrix
    products, 24 bytes for each logit are read and written (28 in 16 bits). With
    `cross_entropies` and automatic differentiation it is more than 100, which on a
    GPU would take as long as the products.

    The products are those of a matrix whose rows fill whole blocks, since a GPU is
    slower at others. Copies of row 0 fill up the last block: they change no maximum,
    and without their probabilities the others are divided by what is left.

    Args:
        states: the decoder's output, float32 [N, D].
        table: the softmax matrix, float32 [V, D].
        label_rows: its rows of the labels, float32 [N, D]: looked up by the caller,
            so that their sparse gradient is scattered with that of other look-ups.
        labels: int [N]
        weights: of the rows, float32 [N]: 1, or 0 for padding.
        smoothing: the probability that is taken from the label.
        dtype: of the matrix products.

    Returns:
        The sums of the label-smoothed loss and of the negative log-likelihood: float32
        scalars. The latter has no gradient.
    """
    vocab_size = table.shape[0]
    rest = smoothing / (vocab_size - 1)
    copies = -vocab_size % BLOCK
    labels = ops.cast(labels, "int64")  # a GPU has int32 in the host's memory
    label_column, weights = ops.expand_dims(labels, 1), ops.expand_dims(weights, 1)
    starts = ops.arange(ops.shape(labels)[0], dtype="int64") * (vocab_size + copies)
    starts = ops.expand_dims(starts, 1)

    def pick(array: Tensor, ids: Tensor) -> Tensor:
        """Returns array[n, ids[n]]; `ops.take_along_axis` would copy the array."""
        return ops.take(ops.reshape(array, (-1,)), starts + ops.cast(ids, "int64"))

    @ops.custom_gradient
    def losses(
        states: Tensor, table: Tensor, label_rows: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        matrix = ops.cast(table, dtype)
        with_copies = fill_block(matrix, matrix[:1])
        logits = ops.matmul(ops.cast(states, dtype), ops.transpose(with_copies))
        probabilities = ops.softmax(logits)
        exact = probabilities
        if dtype != "float32":
            exact = ops.softmax(ops.cast(logits, "float32"))
        share_left = 1.0
        if copies:
            share_left -= copies * pick(exact, ops.zeros_like(starts))

        def without_copies(x: Tensor) -> Tensor:
            """Divides x [N, any], a multiple of the probabilities, by what is left."""
            return x / share_left if copies else x

        # The largest probability is at least 1 / V, so its logarithm is exact. (Not by
        # `top_k`: XLA would sort all logits for it.)
        largest = ops.max(exact, axis=-1, keepdims=True)
        log_normaliser = ops.cast(ops.max(logits, axis=-1, keepdims=True), "float32")
        log_normaliser -= ops.log(without_copies(largest))
        label_logit = ops.cast(pick(logits, label_column), "float32")
        label_probability = without_copies(pick(exact, label_column))
        column_sums = _column_sums(table)
        logit_sum = ops.matmul(states, ops.expand_dims(column_sums, 1))
        loss = log_normaliser - (1.0 - smoothing - rest) * label_logit
        loss = ops.sum(weights * (loss - rest * logit_sum))
        nll = ops.sum(weights * (log_normaliser - label_logit))

        def grad(*upstreams: Any) -> tuple[Tensor, Tensor, Tensor]:
            upstream, _ = keras.tree.flatten(upstreams)  # on JAX they are one tuple
            others = _without(probabilities, labels)
            excess = label_probability - (1.0 - smoothing - rest)
            with_zeros = fill_block(matrix, ops.zeros_like(matrix[:1]))
            d_rows = ops.matmul(others, with_zeros)
            d_rows = without_copies(ops.cast(d_rows, "float32"))
            d_rows += excess * label_rows
            d_rows -= rest * column_sums

            factor = weights * upstream
            rows = states * factor
            columns = ops.transpose(ops.cast(without_copies(rows), dtype))
            d_table = ops.matmul(columns, others)
            if copies:
                d_table = d_table[:, :vocab_size]
            d_table = ops.cast(ops.transpose(d_table), "float32")
            d_table -= rest * _column_sums(rows)
            return d_rows * factor, d_table, excess * rows

        return (loss, nll), grad

    return losses(states, table, label_rows)


def alignment_loss(weights: Tensor, alignment: Tensor) -> Tensor:
    """Returns the cross-entropy of attention weights with an alignment, summed.

    Weights below 1e-9 count as 1e-9: the source's padding has the weight 0.

    Args:
        weights: of one head, float32 [B, T, S].
        alignment: float32 [B, T, S]; the row of a target token that is linked to n
            source tokens has 1 / n for each of them, and the other weights are 0.
    """
    return -ops.sum(alignment * ops.log(ops.maximum(weights, 1e-9)))


def cross_entropies(
    logits: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Returns the cross-entropies with label-smoothed targets and with the labels.

    The smoothed target gives the label the probability 1 - smoothing, and each of the
    other V - 1 ids u = smoothing / (V - 1). As these probabilities add up to one,

        loss = logsumexp(logits) - (1 - smoothing - u) logit[label] - u sum(logits),

    which needs no array of soft targets. tensor2tensor subtracts the target's entropy,
    a constant; this function does not.

    Training computes the same from the decoder's output, with a gradient written by
    hand: `output_losses`.

    Args:
        logits: float32 [N, V]
        labels: int [N]
        smoothing: the probability that is taken from the label.

    Returns:
        The label-smoothed loss, and the negative log-likelihood of the labels,
        logsumexp(logits) - logit[label]; both float32 [N].
    """
    rest = smoothing / (logits.shape[-1] - 1)
    log_normaliser = ops.logsumexp(logits, axis=-1)
    at_label = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    loss = log_normaliser - (1.0 - smoothing - rest) * at_label
    return loss - rest * ops.sum(logits, axis=-1), log_normaliser - at_label


def summed_cross_entropies(
    logits: Tensor, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Returns both `cross_entropies`, summed over the target tokens, as scalars.

    Args:
        logits: float32 [B, T, V]
        target: int [B, T], padded with 0.
        smoothing: see `cross_entropies`.
    """
    rows = ops.reshape(logits, (-1, logits.shape[-1]))
    loss, nll = cross_entropies(rows, ops.reshape(target, (-1,)), smoothing)
    return sum_over_tokens(loss, target), sum_over_tokens(nll, target)


def count_tokens(target: Tensor) -> Tensor:
    """Returns the number of target tokens, EOS included, as float32."""
    return ops.sum(ops.cast(ops.not_equal(target, PAD), "float32"))


def sum_over_tokens(per_token: Tensor, target: Tensor) -> Tensor:
    """Returns the sum of [B, T] values over the tokens of target [B, T]."""
    is_token = ops.cast(ops.not_equal(target, PAD), "float32")
    return ops.sum(ops.reshape(per_token, ops.shape(target)) * is_token)


@serializable
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """The label-smoothed cross-entropy (5.4) for `compile`, the mean of all tokens.

    Args:
        smoothing: see `cross_entropies`.
        **kwargs: arguments of `keras.losses.Loss`.
    """

    def __init__(self, smoothing: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.smoothing = smoothing

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of target ids [B, T] and logits [B, T, V], a scalar."""
        target = ops.cast(y_true, "int32")
        loss, _ = summed_cross_entropies(y_pred, target, self.smoothing)
        return loss / ops.maximum(count_tokens(target), 1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "smoothing": self.smoothing}
