"""Finds where the host would wait for a GPU: copies from the device to the host.

An operation whose kernel takes an argument in the host's memory cannot start before the
device has computed it. TensorFlow keeps most int32 tensors in the host's memory, so one
that the device computes or stores is copied for the next comparison or sum.
"""

import tensorflow as tf
from placement import (
    called_graphs,
    gpu_kernel,
    host_memory,
    is_compiled,
    is_pinned,
    reachable,
)

_HANDLES = (tf.resource, tf.variant, tf.string)  # they are never on the device
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")


def host_waits(graph: tf.Graph) -> list[str]:
    """Returns each copy from the device to the host as "producer -> consumer".

    Functions that XLA compiles count as one operation on the device.
    """
    waits = []
    for operation in reachable(graph):
        for index, tensor in enumerate(operation.inputs):
            if _reads_on_host(operation, index) and _is_on_device(tensor):
                waits.append(f"{tensor.op.name} -> {operation.name}")
        if operation.type in _LOOPS:
            name = operation.node_def.attr["cond"].func.name
            condition = operation.graph._get_function(name).graph.outputs[0]
            if _is_on_device(condition):
                waits.append(f"{condition.op.name} -> {operation.name}")
    return waits


def _is_on_device(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor would be written to the device's memory."""
    operation = tensor.op
    if tensor.dtype in _HANDLES or is_pinned(operation):
        return False
    if is_compiled(operation):
        return True
    if operation.type == "Placeholder" or called_graphs(operation):
        # Arguments and results of functions are on the host if they are int32.
        return tensor.dtype != tf.int32
    kernel = gpu_kernel(operation)
    if kernel is None:
        return False  # the operation runs on the CPU
    index = len(operation.inputs) + tensor.value_index
    return not list(host_memory(operation, kernel))[index]


def _reads_on_host(operation: tf.Operation, index: int) -> bool:
    """Returns whether an operation needs an input in the host's memory."""
    dtype = operation.inputs[index].dtype
    if is_compiled(operation):
        return False
    if called_graphs(operation):
        is_index = operation.type in _BRANCHES and index == 0
        return is_index or dtype == tf.int32
    kernel = None if is_pinned(operation) else gpu_kernel(operation)
    return kernel is None or list(host_memory(operation, kernel))[index]
