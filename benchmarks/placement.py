"""Where a GPU would run the operations of a graph, read on any machine.

TensorFlow's package for Linux has the GPU kernels. Even without a GPU, their registry
shows which operations have none, and which arguments live in the host's memory.
"""

import functools
from collections.abc import Iterator, Sequence

import tensorflow as tf
from tensorflow.core.framework.kernel_def_pb2 import KernelDef
from tensorflow.python.framework import kernels


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
