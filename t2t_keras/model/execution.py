"""Formulas whose fast form depends on what executes them.

TensorFlow's kernels execute operations one by one, each with a pass over its arrays;
XLA fuses them, and a GPU multiplies whole blocks. A formula that is fast for one may be
slow for the other, so there are two of some, and `Execution` says which one is traced.
The layers call these functions by what they compute.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import keras
from keras import ops

from t2t_keras.model.backend import Tensor


@dataclasses.dataclass(frozen=True)
class Execution:
    """What executes operations.

    Attributes:
        is_fused: whether XLA fuses them.
        has_column_products: whether the sum over the rows of an array is faster as a
            matrix product, see `column_sums`.
        keep: returns equal tensors that XLA stores. It would compute others again
            wherever they are used, from whatever is stored.
    """

    is_fused: bool = False
    has_column_products: bool = False
    keep: Callable[[Sequence[Tensor]], Sequence[Tensor]] = tuple


_KERNELS = Execution()
_execution = contextvars.ContextVar("execution", default=_KERNELS)


@contextlib.contextmanager
def executed_by(execution: Execution) -> Iterator[None]:
    """Sets what executes the operations that the `with` block traces."""
    token = _execution.set(execution)
    try:
        yield
    finally:
        _execution.reset(token)


def current_execution() -> Execution:
    """Returns what executes the operations that are being traced."""
    return _execution.get()


def to_rows(x: Tensor, *axes: int) -> Tensor:
    """Returns [B, T, ...] as rows [N, *axes], N = B T; without axes [N, ...]."""
    if current_execution().is_fused:
        x = ops.swapaxes(x, 0, 1)
    return ops.reshape(x, (-1, *(axes or x.shape[2:])))


def from_rows(
    rows: Tensor, batch: int | Tensor, length: int | Tensor, *axes: int
) -> Tensor:
    """Returns rows [N, ...] as [B, T, *axes]; without axes as [B, T, ...]."""
    axes = axes or rows.shape[1:]
    if current_execution().is_fused:
        return ops.swapaxes(ops.reshape(rows, (length, batch, *axes)), 0, 1)
    return ops.reshape(rows, (batch, length, *axes))


def on_device(ids: Tensor) -> Tensor:
    """Returns integers that TensorFlow's kernels reshape on the device.

    They reshape int32 arrays of a GPU on the host.
    """
    if keras.backend.backend() != "tensorflow" or current_execution().is_fused:
        return ids
    return ops.cast(ids, "int64")


# Matrix products are faster on a GPU if their sizes are multiples of this.
BLOCK = 64


def fill_block(matrix: Tensor, row: Tensor) -> Tensor:
    """Pads a matrix [V, D] to a multiple of BLOCK rows with copies of a row [1, D]."""
    copies = -matrix.shape[0] % BLOCK
    if not copies:
        return matrix
    return ops.concatenate([matrix, ops.tile(row, (copies, 1))])


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """Returns x + bias, for x [..., D] and a bias [D]."""
    if not current_execution().has_column_products:
        return x + bias

    @ops.custom_gradient
    def add(x: Tensor, bias: Tensor) -> tuple[Tensor, Callable[..., object]]:
        def grad(upstream: Tensor) -> tuple[Tensor, Tensor]:
            return upstream, column_sums(upstream)

        return x + bias, grad

    return add(x, ops.convert_to_tensor(bias, x.dtype))


def relu(x: Tensor) -> Tensor:
    """Returns max(x, 0).

    XLA rewrites the gradient's condition y > 0 as x > 0, and so stores x besides y. It
    leaves y != 0 as it is. Then cuBLASLt can also do the maximum within the product.
    """
    if not current_execution().is_fused:
        return ops.relu(x)

    @ops.custom_gradient
    def apply(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        y = ops.relu(x)

        def grad(upstream: Tensor) -> Tensor:
            return ops.where(ops.not_equal(y, 0), upstream, 0)

        return y, grad

    return apply(x)


def normalize(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Returns rows x [..., D] of mean 0 and variance 1, times gamma [D] plus beta [D].

    Args:
        x: [..., D]
        gamma: [D]
        beta: [D]
        epsilon: added to the variance.
    """
    if current_execution().is_fused:
        return _normalize_fused(x, gamma, beta, epsilon)
    centred, _, scale = _center(x, epsilon)
    return scale_and_shift(centred * scale, gamma, beta)


def _normalize_fused(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Normalizes x [..., D] with a gradient written by hand, for XLA.

    It would fuse the means over a row into whatever uses the normalized row, and could
    then not fuse the gradients of gamma and beta, which are sums over the rows: so it
    would store one more array [..., D]. Here it stores means and scales, [..., 1]. It
    also stores the upstream gradient, and sums it for gamma and beta in one pass.
    """
    keep = current_execution().keep

    @ops.custom_gradient
    def apply(
        x: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Callable[..., object]]:
        centred, mean, scale = _center(x, epsilon)

        def grad(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            upstream, kept_mean, kept_scale = keep([upstream, mean, scale])
            unit = (x - kept_mean) * kept_scale  # [..., D]
            rows = tuple(range(len(x.shape) - 1))
            d_beta = ops.sum(upstream, axis=rows)  # [D]
            d_gamma = ops.sum(upstream * unit, axis=rows)  # [D]
            d_unit = upstream * gamma  # [..., D]
            shift = ops.mean(d_unit, axis=-1, keepdims=True)  # [..., 1]
            slope = ops.mean(d_unit * unit, axis=-1, keepdims=True)  # [..., 1]
            return (d_unit - shift - slope * unit) * kept_scale, d_gamma, d_beta

        return centred * scale * gamma + beta, grad

    # A custom gradient refuses variables.
    return apply(x, ops.reshape(gamma, (-1,)), ops.reshape(beta, (-1,)))


def _center(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns rows [..., D] less their means, the means, and 1 / their deviations."""
    mean = ops.mean(x, axis=-1, keepdims=True)  # [..., 1]
    centred = x - mean
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)  # [..., 1]
    return centred, mean, ops.rsqrt(variance + epsilon)


def scale_and_shift(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Returns x gamma + beta, for x [..., D] and vectors [D]."""
    if not current_execution().has_column_products:
        return x * gamma + beta

    @ops.custom_gradient
    def apply(
        x: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Callable[..., object]]:
        def grad(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            d_gamma = column_sums(upstream * x)
            return upstream * gamma, d_gamma, column_sums(upstream)

        return x * gamma + beta, grad

    return apply(x, ops.convert_to_tensor(gamma), ops.convert_to_tensor(beta))


def column_sums(x: Tensor) -> Tensor:
    """Returns the sums [D] over all axes of x [..., D] but the last, as a product.

    It is several times faster than `ops.sum` on a CPU, whose order of summation also
    depends on the number of threads.
    """
    rows = ops.reshape(x, (-1, x.shape[-1]))  # [N, D]
    ones = ops.ones((1, ops.shape(rows)[0]), x.dtype)
    return ops.reshape(ops.matmul(ones, rows), (-1,))
