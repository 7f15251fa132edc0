"""XLA's compiled programs are kept on disk: the next process need not compile them."""

import contextlib
import hashlib
import importlib.metadata
import os
import re
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.errors import UserError, first_line
from t2t_keras.gpu_details import gpu_details

_FLAG = "--tf_xla_persistent_cache_directory"
_XLA_FLAGS = {
    # XLA's own matmul kernels. It chooses among them by timing, which is not
    # deterministic, and without timing it chooses some that are ten times as slow as
    # cuBLAS.
    "xla_gpu_enable_triton_gemm": "false",
    # Products of one input that XLA joins if they are smaller than this. It would then
    # copy the columns of the result to queries, keys and values.
    "xla_gpu_dot_merger_threshold_mb": "0",
}


def keep_compiled_programs() -> None:
    """Lets XLA keep its programs for GPUs in a folder of the user's cache.

    It sets `TF_XLA_FLAGS`, which TensorFlow reads when it first runs something.
    TensorFlow names a file by the program before its compilation, so there is a folder
    for all that the result depends on besides: the versions, the card, and XLA's flags.
    So the project's own flags in `XLA_FLAGS` are set here, before the folder is named.
    Files are written under another name and moved, so several processes may share
    them. With a folder of the user's in `TF_XLA_FLAGS`, or if the cache cannot be
    written, `TF_XLA_FLAGS` stays as it is. Without a GPU, nothing is done.
    """
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return
    xla_flags = os.environ.get("XLA_FLAGS", "")
    for name, value in _XLA_FLAGS.items():
        if name not in xla_flags:
            xla_flags = f"{xla_flags} --{name}={value}".strip()
    os.environ["XLA_FLAGS"] = xla_flags
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if _FLAG in flags:
        return
    cards = sorted({str(sorted(gpu.items())) for gpu in gpu_details()})
    version = importlib.metadata.version("t2t_keras")
    text = "\n".join([version, tf.__version__, xla_flags, *cards])
    # XLA writes there without asking, and a failure would end the training.
    with contextlib.suppress(OSError, RuntimeError):
        folder = _cache_folder() / hashlib.sha256(text.encode()).hexdigest()[:16]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK) and not re.search(r"[\s'\"]", str(folder)):
            os.environ["TF_XLA_FLAGS"] = f"{flags} {_FLAG}={folder}".strip()


def compiled_programs() -> Path | None:
    """Returns the folder in which XLA keeps its programs; None: they are not kept."""
    match = re.search(rf"{_FLAG}=(\S+)", os.environ.get("TF_XLA_FLAGS", ""))
    return Path(match[1]) if match else None


@contextlib.contextmanager
def damaged_programs_named() -> Iterator[None]:
    """Says which folder to remove if a program that was kept is damaged.

    Raises:
        UserError: TensorFlow could not read one in the `with` block.
    """
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OutOfRangeError, tf.errors.DataLossError) as error:
        folder = compiled_programs()
        if folder is None:
            raise
        raise UserError(
            f"{folder}: a program that XLA kept there is damaged "
            f"({first_line(error)}); remove the folder"
        ) from None


def _cache_folder() -> Path:
    """Returns the folder for programs of all machines.

    Raises:
        RuntimeError: the user has no home directory.
    """
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "t2t_keras" / "xla"
