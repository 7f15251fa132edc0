"""What TensorFlow knows of this machine's GPUs."""

from typing import TypedDict


class GpuDetails(TypedDict, total=False):
    """A GPU; TensorFlow may know less of it, or more."""

    device_name: str
    compute_capability: tuple[int, int]


def gpu_details() -> list[GpuDetails]:
    """Returns the details of each GPU; TensorFlow need not have run anything before."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
