"""Standard error, captured with what C++ code prints."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def diverted_stderr() -> Iterator[BinaryIO]:
    """Diverts standard error to a file, including what C++ code prints.

    Yields:
        The file.
    """
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
