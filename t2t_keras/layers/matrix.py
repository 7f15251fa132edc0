"""Matrices in the dtype of the products, cast once for many products."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from keras import ops


class HasMatrix:
    """A layer that multiplies by one matrix, a float32 variable.

    A training step casts it once. Decoding would cast it at every position, in bfloat16
    a seventh of the time: so it holds the result.
    """

    _held: Any = None

    def matrix(self) -> Any:
        """Returns the matrix in the compute dtype."""
        raise NotImplementedError

    def held_or_cast(self, variable: Any) -> Any:
        """Returns the variable in the compute dtype, or what is held in its place."""
        if self._held is not None:
            return self._held
        return ops.cast(variable, self.compute_dtype)


@contextlib.contextmanager
def held(layers: Sequence[HasMatrix], matrices: Sequence[Any]) -> Iterator[None]:
    """Makes layers multiply by these matrices instead of casting their own."""
    for layer, matrix in zip(layers, matrices, strict=True):
        layer._held = matrix
    try:
        yield
    finally:
        for layer in layers:
            layer._held = None
