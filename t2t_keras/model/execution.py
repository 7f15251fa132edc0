"""What executes the operations that are traced, for formulas that depend on it.

TensorFlow's kernels execute operations one by one, each with a pass over its arrays.
XLA fuses them. So a formula that is fast for one may be slow for the other.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence

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
