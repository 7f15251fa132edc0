"""The GPUs that a process may use, without TensorFlow."""

import glob
import os

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
