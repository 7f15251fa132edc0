"""Where a GPU would run the operations of a graph, read on any machine.

TensorFlow's package for Linux has the GPU kernels. Even without a GPU, their registry
shows which operations have none, and which arguments live in the host's memory.

An operation whose kernel takes an argument in the host's memory cannot start before the
device has computed it. TensorFlow keeps most int32 tensors in the host's memory, so one
that the device computes or stores is copied for the next comparison or sum.
"""

import functools
from collections.abc import Iterator, Sequence

import tensorflow as tf
from tensorflow.core.framework.kernel_def_pb2 import KernelDef
from tensorflow.python.framework import kernels

_HANDLES = (tf.resource, tf.variant, tf.string)  # they are never on the device
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")


def reachable(graph: tf.Graph) -> Iterator[tf.Operation]:
    """Yields the operations that outputs and effects depend on.

    Those of called functions are among them, except of functions that XLA compiles.
    """
    stack = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    seen = set(stack)
    while stack:
        operation = stack.pop()
        yield operation
        for producer in _producers(operation):
            if producer not in seen:
                seen.add(producer)
                stack.append(producer)
        if not is_compiled(operation):
            for function in called_graphs(operation):
                yield from reachable(function)


def _producers(operation: tf.Operation) -> list[tf.Operation]:
    """Returns the operations that one depends on."""
    return [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)


def called_graphs(operation: tf.Operation) -> list[tf.Graph]:
    """Returns the graphs of the functions that an operation calls."""
    names = [attribute.func.name for attribute in operation.node_def.attr.values()]
    return [operation.graph._get_function(name).graph for name in names if name]


def is_compiled(operation: tf.Operation) -> bool:
    """Returns whether it calls a function that XLA compiles."""
    return operation.node_def.attr["_XlaMustCompile"].b


def gpu_kernel(operation: tf.Operation) -> KernelDef | None:
    """Returns the registered kernel for a GPU and the operation's dtypes, if any."""
    registered = _registered_kernels(operation.type)
    for device in ("GPU", "DEFAULT"):
        for kernel in registered:
            if kernel.device_type == device and _allows(kernel, operation):
                return kernel
    return None


@functools.cache
def _registered_kernels(operation_type: str) -> Sequence[KernelDef]:
    return kernels.get_registered_kernels_for_op(operation_type).kernel


def _allows(kernel: KernelDef, operation: tf.Operation) -> bool:
    for constraint in kernel.constraint:
        attribute = operation.node_def.attr[constraint.name]
        types = attribute.list.type or [attribute.type]
        if not set(types) <= set(constraint.allowed_values.list.type):
            return False
    return not kernel.label


def host_memory(operation: tf.Operation, kernel: KernelDef) -> Iterator[bool]:
    """Yields for each input and output whether it lives in the host's memory."""
    definition = operation.op_def
    for arguments in (definition.input_arg, definition.output_arg):
        for argument in arguments:
            count = 1
            if argument.number_attr:
                count = operation.node_def.attr[argument.number_attr].i
            elif argument.type_list_attr:
                types = operation.node_def.attr[argument.type_list_attr].list.type
                count = len(types)
            yield from [argument.name in kernel.host_memory_arg] * count


def is_pinned(operation: tf.Operation) -> bool:
    """Returns whether the graph puts it on the CPU, as operations on strings.

    The all-reduce adds on the CPU here, because the audited replicas are CPUs.
    """
    is_on_cpu = operation.device.endswith("device:CPU:0")
    is_of_replica = "replica" in operation.device or operation.type == "AddN"
    return is_on_cpu and not is_of_replica


def host_waits(graph: tf.Graph) -> list[str]:
    """Returns each copy from the device to the host as "producer -> consumer".

    Functions that XLA compiles count as one operation on the device.
    """
    waits = []
    for operation in reachable(graph):
        read = [
            tensor
            for index, tensor in enumerate(operation.inputs)
            if _reads_on_host(operation, index)
        ]
        if operation.type in _LOOPS:
            name = operation.node_def.attr["cond"].func.name
            read += operation.graph._get_function(name).graph.outputs
        for tensor in map(_before_identities, read):
            if _is_on_device(tensor):
                waits.append(f"{tensor.op.name} -> {operation.name}")
    return waits


def _before_identities(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor that Identity operations pass on.

    TensorFlow's graph optimizer removes them. One that returns a loop's condition, such
    as a comparison of int32 counters on the host, would copy it to the device.
    """
    while tensor.op.type == "Identity" and not tensor.op.control_inputs:
        (tensor,) = tensor.op.inputs
    return tensor


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
