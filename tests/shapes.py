"""Models whose weights have shapes and no values, for counts of parameters."""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Within it, the weights of new models take no memory."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    # Otherwise the next scope that ends would give them values.
    keras.utils.clear_session()
