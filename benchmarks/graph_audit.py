"""Audits what a GPU would run: the operations of a graph, read on any machine.

TensorFlow's package for Linux has the GPU kernels. Even without a GPU, their registry
shows which operations have none, and which arguments live in the host's memory.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import tensorflow as tf
from tensorflow.core.framework.kernel_def_pb2 import KernelDef
from tensorflow.python.framework import kernels
from training_steps import model_and_step

from t2t_keras import HParams
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.constraint import Constraint
from t2t_keras.model.layers.embedding import BLOCK
from t2t_keras.model.transformer import Transformer
from t2t_keras.training.strategy import make_strategy

# Operations without work on the device: names, shapes, and reads of a variable.
_FREE = frozenset(
    (
        *("Const", "Identity", "IdentityN", "NoOp", "Placeholder", "ReadVariableOp"),
        *("PreventGradient", "Reshape", "ExpandDims", "Squeeze", "StopGradient"),
        *("Shape", "ShapeN", "EnsureShape", "VarHandleOp", "_Arg", "_Retval"),
    )
)


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
    """

    missing_kernels: list[str]
    host_vocabulary_tensors: list[str]
    bytes_per_logit: float
    float_ops: int


def audit(graph: tf.Graph, vocab_size: int, rows: int) -> Audit:
    """Audits a graph, and the functions that it calls.

    Args:
        graph: the graph.
        vocab_size: V, which no other axis has.
        rows: N; arrays of the size N V are counted.
    """
    vocabulary = _VocabularyAxis(vocab_size)
    missing: dict[str, None] = {}
    hosted: dict[str, None] = {}
    num_bytes = 0
    float_ops = 0
    for operation in reachable(graph):
        if _is_pinned(operation):
            continue
        tensors = [*operation.inputs, *operation.outputs]
        kernel = gpu_kernel(operation)
        if kernel is None:
            types = ", ".join(sorted({t.dtype.name for t in tensors}))
            missing[f"{operation.type}({types})"] = None
        on_host = _host_memory(operation, kernel) if kernel else [True] * len(tensors)
        for tensor, is_hosted in zip(tensors, on_host, strict=True):
            if is_hosted and vocabulary.is_in(tensor.shape):
                hosted[f"{operation.type} {operation.name}: {tensor.name}"] = None
        if operation.type in _FREE:
            continue
        float_ops += any(t.dtype.is_floating for t in operation.outputs)
        if "MatMul" not in operation.type:
            num_bytes += sum(vocabulary.logit_bytes(t, rows) for t in tensors)
    bytes_per_logit = num_bytes / (rows * vocabulary.padded_size)
    return Audit(list(missing), list(hosted), bytes_per_logit, float_ops)


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


def reachable(graph: tf.Graph) -> Iterator[tf.Operation]:
    """Yields the operations that outputs and effects depend on.

    Those of called functions are among them.
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
        for attribute in operation.node_def.attr.values():
            if attribute.func.name:
                function = graph._get_function(attribute.func.name)
                yield from reachable(function.graph)


def _producers(operation: tf.Operation) -> list[tf.Operation]:
    """Returns the operations that one depends on."""
    return [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)


def gpu_kernel(operation: tf.Operation) -> KernelDef | None:
    """Returns the registered kernel for a GPU and the operation's dtypes, if any."""
    registered = kernels.get_registered_kernels_for_op(operation.type).kernel
    for device in ("GPU", "DEFAULT"):
        for kernel in registered:
            if kernel.device_type == device and _allows(kernel, operation):
                return kernel
    return None


def _allows(kernel: KernelDef, operation: tf.Operation) -> bool:
    for constraint in kernel.constraint:
        attribute = operation.node_def.attr[constraint.name]
        types = attribute.list.type or [attribute.type]
        if not set(types) <= set(constraint.allowed_values.list.type):
            return False
    return not kernel.label


def _host_memory(operation: tf.Operation, kernel: KernelDef) -> Iterator[bool]:
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


def _is_pinned(operation: tf.Operation) -> bool:
    """Returns whether the graph puts it on the CPU, as operations on strings."""
    return (
        operation.device.endswith("device:CPU:0") and "replica" not in operation.device
    )


# Size of the audited batch. Small sizes that differ from every other axis show which
# tensors have logits.
_ROWS = 3
_LENGTH = 5


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
        return run((ids, ids), index, learning_rate, dry_run)

    graph = update.get_concrete_function().graph
    return audit(graph, vocab_size, _ROWS * _LENGTH)


def search_audit(
    hparams: HParams,
    vocab_size: int,
    constraint: Callable[[tf.Tensor], Constraint] | None = None,
    rows: int = 3,
    beams: int = 4,
) -> Audit:
    """Audits beam search.

    The bytes for each logit are not counted: in a loop the shapes are not known.

    Args:
        hparams: the model's.
        vocab_size: V.
        constraint: max_length [rows] -> the constraint of the search.
        rows: sentences in a batch.
        beams: hypotheses for each.
    """
    model = Transformer(hparams, vocab_size)

    @tf.function(autograph=False)
    def search():
        max_length = tf.fill([rows], 7)
        return beam_search(
            model,
            tf.ones([rows, 5], tf.int32),
            beam_size=beams,
            alpha=0.6,
            max_length=max_length,
            constraint=constraint(max_length) if constraint else None,
        )

    graph = search.get_concrete_function().graph
    return audit(graph, vocab_size, rows * beams)
