"""Gradients written by hand, where TensorFlow's own are slower.

Each docstring gives the formula and the measured gain (`docs/performance.md`: base on
two CPU cores). Automatic differentiation of the formula gives the same gradient up to
rounding.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from keras import ops

from t2t_keras.model.backend import Tensor

BLOCK = 64  # products are faster on a GPU if their sizes are multiples of it

_is_differentiated = contextvars.ContextVar("is_differentiated", default=True)


@contextlib.contextmanager
def without_gradients() -> Iterator[None]:
    """Within it, `layer_norm` and `add_bias` compute values only.

    Use it for graphs that are never differentiated, such as that of beam search.
    TensorFlow keeps every custom gradient until the process ends, and an export would
    store each of them.
    """
    token = _is_differentiated.set(False)
    try:
        yield
    finally:
        _is_differentiated.reset(token)


def _custom_gradient(function: Callable[..., tuple[Tensor, Any]]) -> Callable[..., Any]:
    """Returns `ops.custom_gradient(function)`; see `without_gradients`."""
    with_gradient = ops.custom_gradient(function)

    @functools.wraps(function)
    def value(*args: Tensor) -> Tensor:
        return with_gradient(*args) if _is_differentiated.get() else function(*args)[0]

    return value


def _column_sums(x: Tensor) -> Tensor:
    """Returns the sums [n] over the rows of x [N, n], as a matrix product.

    It is several times faster than `ops.sum` on a CPU, whose order of summation also
    depends on the number of threads.
    """
    ones = ops.ones((1, ops.shape(x)[0]), x.dtype)
    return ops.reshape(ops.matmul(ones, x), (-1,))


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Computes gamma * (x - mean) / sqrt(variance + epsilon) + beta for each row.

    Automatic differentiation passes over the array twice as often: its gradient takes
    228 ms of a step of 3,260 ms, the one written here 90 ms.

    Args:
        x: float32 [N, D]
        gamma: [D]
        beta: [D]
        epsilon: a small number above 0.

    Returns:
        [N, D]
    """

    @_custom_gradient
    def normalized(
        x: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        centred = x - ops.mean(x, axis=1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=1, keepdims=True)
        inverse = ops.rsqrt(variance + epsilon)
        unit = centred * inverse

        def grad(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """Removes from the upstream gradient what would shift or scale x."""
            # Sums over the columns are matrix products for the same reasons.
            along_unit = upstream * unit
            mean = ops.reshape(gamma, (-1, 1)) / x.shape[1]
            shift, scale = ops.matmul(upstream, mean), ops.matmul(along_unit, mean)
            return (
                (upstream * gamma - shift - unit * scale) * inverse,
                _column_sums(along_unit),
                _column_sums(upstream),
            )

        return unit * gamma + beta, grad

    return normalized(x, gamma, beta)


@_custom_gradient
def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """Computes x + bias.

    The gradient of the bias is the sum of the upstream gradient over the rows. Computed
    as a product with a row of ones, it takes 25 ms of a step in bfloat16, and it is
    accumulated in float32; TensorFlow's BiasAddGrad, on one thread, takes 53 ms.

    Args:
        x: [N, F]
        bias: [F]

    Returns:
        [N, F]
    """

    def grad(upstream: Tensor) -> tuple[Tensor, Tensor]:
        return upstream, _column_sums(upstream)

    return ops.add(x, bias), grad


def fill_block(matrix: Tensor, row: Tensor) -> Tensor:
    """Fills up the last BLOCK rows of a matrix [V, D] with copies of a row [1, D]."""
    copies = -matrix.shape[0] % BLOCK
    if not copies:
        return matrix
    return ops.concatenate([matrix, ops.repeat(row, copies, axis=0)])


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

    def is_at(index: Tensor, size: int) -> Tensor:
        """Returns bool [N, size]; a GPU compares integers in the host's memory."""
        places = np.arange(size, dtype="float32")
        return ops.equal(places, ops.expand_dims(ops.cast(index, "float32"), 1))

    starts = ops.arange(ops.shape(ids)[0], dtype="int64") * blocks
    masked = ops.take(ops.reshape(x, (-1, BLOCK)), starts + block, axis=0)
    masked = ops.where(is_at(place, BLOCK), 0, masked)
    others = ops.where(
        ops.expand_dims(is_at(block, blocks), 2),
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
    """Projects to logits and returns the weighted sums of both `loss.cross_entropies`.

    With P = softmax(states table^T) and the soft targets Q, the gradient of the logits
    is (P - Q) * weights. Q is u everywhere, and 1 - smoothing at the label, so

        (P - Q) table = P' table + c table[labels] - u sum(table),

    where P' is P without the labels' probabilities, and c is these, less
    1 - smoothing - u. (In 16 bits P itself, rounded, would leave little of a gradient
    that is a small difference.) The other factor of the gradient, weights, multiplies
    rows [N, D]. So the only arrays [N, V] are logits, P and P', and in 16 bits also
    logits and P in float32, from which the losses are computed: beside the matrix
    products, 20 bytes for each logit are read and written (24 in 16 bits). With
    `loss.cross_entropies` and automatic differentiation it is more than 100, which on a
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

        largest, best = ops.top_k(logits, 1)
        # The largest probability is at least 1 / V: its logarithm is exact.
        log_largest = ops.log(without_copies(pick(exact, best)))
        log_normaliser = ops.cast(largest, "float32") - log_largest
        label_logit = ops.cast(pick(logits, label_column), "float32")
        label_probability = without_copies(pick(exact, label_column))
        column_sums = _column_sums(table)
        logit_sum = ops.matmul(states, ops.expand_dims(column_sums, 1))
        loss = log_normaliser - (1.0 - smoothing - rest) * label_logit
        loss = ops.sum(weights * (loss - rest * logit_sum))
        nll = ops.sum(weights * (log_normaliser - label_logit))

        def grad(upstream: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
