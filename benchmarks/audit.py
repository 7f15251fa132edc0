"""Audits what a GPU would run: the operations of a graph, read on any machine.

TensorFlow's package for Linux has the GPU kernels. Even without a GPU, their registry
shows which operations have none, and which arguments live in the host's memory.

An operation whose kernel takes an argument in the host's memory cannot start before the
device has computed it. TensorFlow keeps most int32 tensors in the host's memory, so one
that the device computes or stores is copied for the next comparison or sum.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf
from decode import row_search
from tensorflow.core.framework.kernel_def_pb2 import KernelDef
from tensorflow.python.framework import kernels
from train import model_and_step

from t2t_keras import HParams
from t2t_keras.data.pipeline import batch_signature
from t2t_keras.decoding.constraint import Constraint
from t2t_keras.decoding.search_loop import SearchLoop, compiled
from t2t_keras.model.execution import BLOCK
from t2t_keras.model.transformer import Transformer
from t2t_keras.training.strategy import distribute_batches, make_strategy

# Operations without work on the device: names, shapes, and reads of a variable.
_FREE = frozenset(
    (
        *("Const", "Identity", "IdentityN", "NoOp", "Placeholder", "ReadVariableOp"),
        *("PreventGradient", "Reshape", "ExpandDims", "Squeeze", "StopGradient"),
        *("Shape", "ShapeN", "EnsureShape", "VarHandleOp", "_Arg", "_Retval"),
    )
)

_HANDLES = (tf.resource, tf.variant, tf.string)  # they are never on the device
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")

# Size of the audited batch. Small sizes that differ from every other axis show which
# tensors have logits.
_ROWS = 3
_LENGTH = 5


class Audit(NamedTuple):
    """The audit of a graph.

    Attributes:
        missing_kernels: the operations for which there is no GPU kernel, each as
            "type(dtypes)".
        host_vocabulary_tensors: the tensors with an axis of V that a GPU's kernel reads
            or writes in the host's memory.
        bytes_per_logit: the bytes of all arrays [N, V] that operations read and write,
            without the matrix products and the look-ups of single elements, divided
            by N V; V is padded as the products' are.
        float_ops: the number of operations that compute float numbers.
        host_waits: where the host waits for the device, see `host_waits`.
    """

    missing_kernels: list[str]
    host_vocabulary_tensors: list[str]
    bytes_per_logit: float
    float_ops: int
    host_waits: list[str]


def audit(
    graph: tf.Graph,
    vocab_size: int,
    rows: int,
    waits_graph: tf.Graph | None = None,
) -> Audit:
    """Audits a graph, and the functions that it calls.

    Args:
        graph: the graph.
        vocab_size: V, which no other axis has.
        rows: N; arrays of the size N V are counted.
        waits_graph: where the waits of the host are looked for; None: in `graph`.
    """
    vocabulary = _VocabularyAxis(vocab_size)
    missing: dict[str, None] = {}
    hosted: dict[str, None] = {}
    num_bytes = 0
    float_ops = 0
    for operation in reachable(graph):
        if is_pinned(operation):
            continue
        tensors = [*operation.inputs, *operation.outputs]
        kernel = gpu_kernel(operation)
        if kernel is None:
            types = ", ".join(sorted({t.dtype.name for t in tensors}))
            missing[f"{operation.type}({types})"] = None
        on_host = host_memory(operation, kernel) if kernel else [True] * len(tensors)
        for tensor, is_hosted in zip(tensors, on_host, strict=True):
            if is_hosted and vocabulary.is_in(tensor.shape):
                hosted[f"{operation.type} {operation.name}: {tensor.name}"] = None
        if operation.type in _FREE:
            continue
        float_ops += any(t.dtype.is_floating for t in operation.outputs)
        if "MatMul" not in operation.type:
            num_bytes += sum(vocabulary.logit_bytes(t, rows) for t in tensors)
    bytes_per_logit = num_bytes / (rows * vocabulary.padded_size)
    waits = host_waits(waits_graph or graph)
    return Audit(list(missing), list(hosted), bytes_per_logit, float_ops, waits)


class _VocabularyAxis:
    """Recognizes the axis of V, which is padded to a multiple of BLOCK in products."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._blocks = -(-size // BLOCK)
        self.padded_size = self._blocks * BLOCK

    def is_in(self, shape: tf.TensorShape) -> bool:
        """Returns whether a shape has such an axis, or the two of its blocks."""
        if not shape.rank:
            return False
        sizes = list(shape)
        if sizes[-2:] == [self._blocks, BLOCK]:
            return True
        return self._size in sizes or self.padded_size in sizes

    def logit_bytes(self, tensor: tf.Tensor, rows: int) -> int:
        """Returns the bytes of a tensor [rows, V], and 0 for any other."""
        if not self.is_in(tensor.shape):
            return 0
        size = tensor.shape.num_elements()
        if size not in (rows * self._size, rows * self.padded_size):
            return 0
        return size * tensor.dtype.size


def training_audit(hparams: HParams, vocab_size: int, replicas: int = 1) -> Audit:
    """Audits a training step; the size of a batch does not change its operations."""
    strategy = make_strategy(replicas)
    _, step = model_and_step(hparams, vocab_size, strategy)

    @tf.function(autograph=False)
    def update():
        ids = tf.ones([_ROWS, _LENGTH], tf.int32)
        index = tf.constant(0, tf.int64)
        learning_rate = tf.constant(1e-3)
        dry_run = tf.constant(False)
        # Not `function` itself, whose signature has no sizes.
        run = step.function.python_function
        names = batch_signature(packed=hparams.bucketing == "packed")
        batch = dict.fromkeys(names, ids)
        return run(batch, index, learning_rate, dry_run)

    graph = update.get_concrete_function().graph
    # The graph that training runs has to ask for sizes.
    waits_graph = step.function.get_concrete_function().graph
    return audit(graph, vocab_size, _ROWS * _LENGTH, waits_graph)


def waits_in_loops(
    hparams: HParams, vocab_size: int, micro_batches: int, replicas: int = 1
) -> list[str]:
    """Returns the host's waits where a call runs several steps, each in micro-batches.

    Args:
        hparams: the model's.
        vocab_size: V.
        micro_batches: the parts into which each replica divides its rows.
        replicas: simulated devices.
    """
    strategy = make_strategy(replicas)
    _, step = model_and_step(hparams, vocab_size, strategy, micro_batches)
    signature = batch_signature(
        aligned=hparams.guided_alignment > 0, packed=hparams.bucketing == "packed"
    )
    batches = iter(distribute_batches(strategy, list, signature))
    return host_waits(step.loop_function(batches).graph)


def search_audit(
    hparams: HParams,
    vocab_size: int,
    make_constraint: Callable[[], Constraint] | None = None,
    rows: int = 3,
    beams: int = 4,
    jit_compile: bool = False,
) -> Audit:
    """Audits beam search.

    The bytes for each logit are not counted: in a loop the shapes are not known.

    Args:
        hparams: the model's.
        vocab_size: V.
        make_constraint: returns the constraint of the search, called in its graph.
        rows: sentences in a batch.
        beams: hypotheses for each.
        jit_compile: whether XLA compiles the search; only the rest is then audited.
    """
    model = Transformer(hparams, vocab_size)

    @tf.function(autograph=False)
    def search():
        constraint = make_constraint() if make_constraint else None
        search_rows = row_search(model, beams, 7, constraint)
        source = tf.ones([rows, 5], tf.int32)
        if jit_compile:
            return compiled(search_rows, source, None, extra_length=2)
        return search_rows(source, None, SearchLoop())

    graph = search.get_concrete_function().graph
    return audit(graph, vocab_size, rows * beams)


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
