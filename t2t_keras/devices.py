"""The cores and GPUs of this machine, and the programs that XLA compiles for them.

XLA's compiled programs are kept on disk: the next process need not compile them.
"""

import contextlib
import glob
import hashlib
import importlib.metadata
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from t2t_keras.errors import UserError, first_line

# Python 3.13 reads it for `os.cpu_count`.
PYTHON_CPU_COUNT = "PYTHON_CPU_COUNT"


def num_cores() -> int:
    """Returns the number of cores that this process may use.

    The environment variable PYTHON_CPU_COUNT changes it.
    """
    count = os.environ.get(PYTHON_CPU_COUNT, "")
    if count.isdigit() and int(count):
        return int(count)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class GpuDetails(TypedDict, total=False):
    """A GPU; TensorFlow may know less of it, or more."""

    device_name: str
    compute_capability: tuple[int, int]


def gpu_details() -> list[GpuDetails]:
    """Returns the details of each GPU; TensorFlow need not have run anything before."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return [tf.config.experimental.get_device_details(gpu) for gpu in gpus]


_NVIDIA = "/dev/nvidia[0-9]*"  # a file for each GPU


def visible_gpus() -> list[str]:
    """Returns the names by which CUDA_VISIBLE_DEVICES selects the visible GPUs."""
    count = len(glob.glob(_NVIDIA))
    selected = os.environ.get("CUDA_VISIBLE_DEVICES")
    if selected is None or not count:
        return list(map(str, range(count)))
    names = []
    for name in map(str.strip, selected.split(",")):
        if name in ("", "-1"):
            break  # CUDA hides the first invalid name and all names after it
        names.append(name)
    return names


# What `t2t` adds to `XLA_FLAGS` on a GPU.
XLA_FLAGS = {
    # XLA's own matmul kernels. It chooses among them by timing, which is not
    # deterministic, and without timing it chooses some that are ten times as slow as
    # cuBLAS.
    "xla_gpu_enable_triton_gemm": False,
    # Products of one input that XLA joins if they are smaller than this. It would then
    # copy the columns of the result to queries, keys and values.
    "xla_gpu_dot_merger_threshold_mb": 0,
}

_FLAG = "--tf_xla_persistent_cache_directory"
_MIN_FREE = 10**9  # bytes of the disk: XLA fails if it cannot write a program

# What TensorFlow says of a file that is damaged, and of one from another program.
_UNREADABLE = re.compile("Read less bytes|Can't parse |Serialized cache key does not")


def keep_compiled_programs() -> None:
    """Lets XLA keep its programs for GPUs in a folder of the user's cache.

    It sets `TF_XLA_FLAGS`, which TensorFlow reads when it first runs something.
    TensorFlow names a file by the program before its compilation, so there is a folder
    for all that the result depends on besides: the versions, the card, and XLA's flags.
    So the project's own flags in `XLA_FLAGS` are set here, before the folder is named.
    Files are written under another name and moved, so several processes may share
    them. With a folder of the user's in `TF_XLA_FLAGS`, if the cache cannot be written,
    or with less than 1 GB free, `TF_XLA_FLAGS` stays as it is. Without a GPU, nothing
    is done.
    """
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return
    xla_flags = os.environ.get("XLA_FLAGS", "")
    for name, value in XLA_FLAGS.items():
        if name not in xla_flags:
            xla_flags = f"{xla_flags} --{name}={str(value).lower()}".strip()
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
        has_space = shutil.disk_usage(folder).free >= _MIN_FREE
        is_writable = os.access(folder, os.W_OK) and has_space
        if is_writable and not re.search(r"[\s'\"]", str(folder)):
            os.environ["TF_XLA_FLAGS"] = f"{flags} {_FLAG}={folder}".strip()


def compiled_programs() -> Path | None:
    """Returns the folder in which XLA keeps its programs; None: they are not kept."""
    match = re.search(rf"{_FLAG}=(\S+)", os.environ.get("TF_XLA_FLAGS", ""))
    return Path(match[1]) if match else None


def program_failure(error: Exception) -> str:
    """Returns what to do if XLA could not read or write a program; "" if it could.

    Args:
        error: of TensorFlow.
    """
    folder = compiled_programs()
    message = first_line(error)
    if folder is None:
        return ""
    if _UNREADABLE.match(message):
        return (
            f"a program that XLA kept there is damaged ({message}); remove the folder"
        )
    if message.startswith(f"{folder}/"):
        return (
            f"XLA cannot keep a program there ({message.rpartition('; ')[2]}); free "
            f"disk space, or set TF_XLA_FLAGS={_FLAG}=DIR to another folder"
        )
    return ""


@contextlib.contextmanager
def program_failures_named() -> Iterator[None]:
    """Names the folder if a kept program could not be read or written.

    Raises:
        UserError: that happened in the `with` block.
    """
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        if failure := program_failure(error):
            raise UserError(f"{compiled_programs()}: {failure}") from None
        raise


def _cache_folder() -> Path:
    """Returns the folder for programs of all machines.

    Raises:
        RuntimeError: the user has no home directory.
    """
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "t2t_keras" / "xla"
