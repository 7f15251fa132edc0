"""Whether TensorFlow has a GPU; it is imported only where there may be one."""

import glob
import os
import sys

_NVIDIA = "/dev/nvidia[0-9]*"  # a file for each GPU


def may_have_gpu() -> bool:
    """Returns whether `has_gpu` may be true, without TensorFlow."""
    if "tensorflow" in sys.modules:
        return True
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not is_hidden and bool(glob.glob(_NVIDIA))


def has_gpu() -> bool:
    """Returns whether TensorFlow has a GPU."""
    if not may_have_gpu():
        return False
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
