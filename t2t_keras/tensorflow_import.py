"""The import of TensorFlow without its remarks on the machine.

Its C++ code prints them while it is loaded, and `TF_CPP_MIN_LOG_LEVEL` mutes only those
that come later. The first import may be Keras's, this package's, or that of a user's
file.
"""

import contextlib
import functools
import importlib.abc
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
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


_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def quiet_import() -> None:
    """Makes the first import of TensorFlow quiet, unless it has been imported.

    Its C++ code then logs nothing later either: it logs as errors what is none, and
    raises real ones. With `TF_CPP_MIN_LOG_LEVEL=0` everything is printed. In notebooks
    TensorFlow's Python code begins at the level INFO; it is WARNING, as in programs.
    """
    if imported := sys.modules.get("tensorflow"):
        _leave_out_info(imported)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow as the other finders do, and makes its import quiet."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Returns TensorFlow's spec; None for every other module."""
        if fullname != "tensorflow":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if loader := spec.loader:
                    run = functools.partial(_run_quietly, loader.exec_module)
                    loader.exec_module = run  # type: ignore[method-assign]
                return spec
        return None


def _run_quietly(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Runs a module's code with standard error diverted."""
    if os.environ.setdefault(_LEVEL, "3") == "0":
        run(module)
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # standard error is closed
            stack.enter_context(diverted_stderr())
        run(module)
    _leave_out_info(module)


def _leave_out_info(module: ModuleType) -> None:
    """Raises the level of TensorFlow's logger from INFO to WARNING."""
    if get_logger := getattr(module, "get_logger", None):
        logger: logging.Logger = get_logger()
        if logger.level == logging.INFO:
            logger.setLevel(logging.WARNING)
