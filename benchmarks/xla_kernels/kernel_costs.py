"""The kernels of a module that XLA has optimized for a GPU, and what each one costs.

A kernel reads its operands and writes its result once, except for what it does not
touch: it reads the slices and rows that it takes of an operand, also through a
transposition or a conversion, and writes only the update where it updates in place.
The caches of the GPU are left out.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from xla_kernels.optimized_hlo import Computation, Instruction, Module

# Instructions without a kernel.
_FREE = frozenset(
    (
        *(
            "parameter",
            "constant",
            "tuple",
            "get-tuple-element",
            "bitcast",
            "after-all",
        ),
        *("add-dependency", "opt-barrier", "partition-id", "replica-id"),
        *("async-done", "async-update", "copy-done"),
    )
)
# Instructions whose first operand has another size than their result: they take some of
# its elements, or add others.
_SELECTIVE = ("slice", "dynamic-slice", "gather", "broadcast", "pad")
_IN_PLACE = ("dynamic-update-slice", "scatter")
# Categories of fusions, by what takes the time in them: the first that is there.
_CATEGORIES = {
    **{"dot": "product", "sort": "sort", "scatter": "scatter", "gather": "gather"},
    **{"reduce": "reduction", "reduce-window": "reduction", "transpose": "transpose"},
    **{"dynamic-update-slice": "update", "concatenate": "concatenation"},
}

# Lanes' cycles for each element; instructions that only move elements have none. The
# special functions have an eighth of the lanes, integers half of them.
_MOVES = frozenset(
    (
        *_FREE,
        *("broadcast", "reshape", "iota", "copy", "slice", "dynamic-slice", "gather"),
        *("concatenate", "pad", "transpose", "reverse", "dynamic-update-slice"),
        *("fusion", "dot", "custom-call", "sort", "scatter", "call"),
    )
)
_SPECIAL = frozenset(
    (
        *("divide", "exponential", "exponential-minus-one", "log", "log-plus-one"),
        *("logistic", "power", "rsqrt", "sqrt", "tanh", "sine", "cosine", "remainder"),
    )
)
_SPECIAL_CYCLES = 8
_INTEGER_CYCLES = {"s32": 2, "u32": 2, "s64": 8, "u64": 8}

# XLA sorts rows of up to so many elements in one kernel.
_SORTED_AT_ONCE = 2048


class Rates(NamedTuple):
    """What a GPU sustains.

    Attributes:
        memory: bytes a second.
        products: FLOPs a second of matrix products in 16 bits.
        float32_products: likewise of float32 matrices.
        lanes: cycles of all lanes a second.
        start: seconds from one kernel to the next.
    """

    memory: float
    products: float
    float32_products: float
    lanes: float
    start: float


class Kernel(NamedTuple):
    """A kernel.

    Attributes:
        name: of its instruction.
        category: such as "product" or "reduction".
        operation: the name of the framework's operation, or "".
        count: how often it runs, in one step of a loop without a known end.
        loop: the name of such a loop, or "".
        num_bytes: read and written in one run.
        flops: of matrix products in one run.
        is_float32: whether they are of float32 matrices.
        cycles: of the lanes, in one run.
    """

    name: str
    category: str
    operation: str
    count: int
    loop: str
    num_bytes: float
    flops: float
    is_float32: bool
    cycles: float

    def seconds(self, rates: Rates) -> float:
        """Returns an estimate of all its runs: a roofline."""
        products = rates.float32_products if self.is_float32 else rates.products
        longest = max(
            self.num_bytes / rates.memory,
            self.flops / products,
            self.cycles / rates.lanes,
        )
        return self.count * (longest + rates.start)


def kernels(module: Module) -> Iterator[Kernel]:
    """Yields the kernels of a module in their order."""
    yield from _kernels(module, module.entry, 1, loop="")


def _kernels(
    module: Module, computation: Computation, count: int, loop: str
) -> Iterator[Kernel]:
    for instruction in computation.instructions.values():
        opcode = instruction.opcode
        if opcode == "while":
            trips = re.search(
                r'"known_trip_count":\{"n":"(\d+)"', instruction.attributes
            )
            runs = count * int(trips[1]) if trips else count
            inner_loop = loop if trips else loop or instruction.name
            for part in ("condition", "body"):
                inner = module.computations[instruction.called(part)]
                yield from _kernels(module, inner, runs, inner_loop)
        elif opcode == "conditional":
            yield from _longest_branch(module, instruction, count, loop)
        elif opcode in ("call", "async-start"):
            called = instruction.called("to_apply") or instruction.called("calls")
            inner = module.computations[called]
            yield from _kernels(module, inner, count, loop)
        elif opcode not in _FREE:
            yield _kernel(module, computation, instruction, count, loop)


def _longest_branch(
    module: Module, instruction: Instruction, count: int, loop: str
) -> list[Kernel]:
    """Returns the kernels of the branch that moves the most bytes."""
    names = re.findall(r"%([\w.\-]+)", instruction.attributes.partition("metadata=")[0])
    branches = [module.computations[x] for x in names if x in module.computations]
    lists = [[*_kernels(module, x, count, loop)] for x in branches]
    return max(lists, key=lambda branch: sum(x.num_bytes for x in branch))


def _kernel(
    module: Module,
    computation: Computation,
    instruction: Instruction,
    count: int,
    loop: str,
) -> Kernel:
    operands = computation.operands(instruction)
    work = _Work(module)
    fractions = work.of_operands(computation, instruction, 1.0, is_in_place=True)
    # An operand that is used twice is read once.
    read = {
        operand.name: operand.num_bytes * fraction
        for operand, fraction in zip(operands, fractions, strict=True)
    }
    written = work.written(computation, instruction)
    passes = _sort_passes(module, instruction)
    product = work.products[0] if work.products else None
    return Kernel(
        instruction.name,
        _category(module, instruction),
        _operation(instruction),
        count * passes,
        loop,
        sum(read.values()) + written,
        sum(flops for flops, _ in work.products),
        product is not None and product[1] == "f32",
        work.cycles,
    )


class _Work:
    """Follows what an instruction needs, from its result back to its operands.

    Attributes:
        cycles: of the lanes, for all elements that are computed.
        products: the FLOPs of each matrix product and the dtype of its operands.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self.cycles = 0.0
        self.products: list[tuple[float, str]] = []

    def of_operands(
        self,
        computation: Computation,
        instruction: Instruction,
        fraction: float,
        is_in_place: bool,
    ) -> list[float]:
        """Returns the fraction of each operand that is read.

        Args:
            computation: has the instruction.
            instruction: the instruction.
            fraction: the fraction of its result that is needed.
            is_in_place: whether an update overwrites its first operand.
        """
        operands = computation.operands(instruction)
        self._count(instruction, operands, fraction)
        if instruction.opcode == "fusion":
            called = self._module.computations[instruction.called("calls")]
            return self._of_parameters(called, fraction)
        sizes = [operand.elements for operand in operands]
        needed = fraction * instruction.elements
        fractions = [fraction] * len(operands)
        if instruction.opcode in _SELECTIVE:
            fractions[0] = min(1.0, needed / max(1, sizes[0]))
        elif instruction.opcode == "dynamic-update-slice":
            unchanged = 1 - sizes[1] / max(1, sizes[0])
            fractions[0] = 0.0 if is_in_place else fraction * unchanged
        elif instruction.opcode == "scatter" and is_in_place:
            fractions[0] = min(1.0, sizes[-1] / max(1, sizes[0]))
        return fractions

    def _of_parameters(self, fused: Computation, fraction: float) -> list[float]:
        """Returns the fraction of each parameter of a fusion that is read."""
        fractions: defaultdict[str, float] = defaultdict(float)
        fractions[fused.root.name] = fraction
        results = {x.name for x in _results(fused)}
        parameters = {}
        for instruction in reversed(fused.instructions.values()):
            needed = min(1.0, fractions[instruction.name])
            if instruction.opcode == "parameter":
                parameters[int(instruction.arguments)] = needed
            elif needed:
                is_in_place = instruction.name in results and _is_update_in_place(
                    fused, instruction
                )
                parts = self.of_operands(fused, instruction, needed, is_in_place)
                for name, part in zip(instruction.operands, parts, strict=True):
                    fractions[name] += part
        return [parameters[index] for index in sorted(parameters)]

    def _count(
        self, instruction: Instruction, operands: list[Instruction], fraction: float
    ) -> None:
        """Counts the cycles and products for a fraction of a result."""
        opcode = instruction.opcode
        if opcode == "dot" or "matmul" in (
            instruction.text("custom_call_target") or ""
        ):
            self.products.append(_product(instruction, operands))
        if opcode in _MOVES:
            return
        if opcode in ("reduce", "reduce-window"):
            elements = operands[0].elements
        else:
            elements = instruction.shapes[0].elements
        cycles = _INTEGER_CYCLES.get(operands[-1].shapes[0].dtype, 1) if operands else 1
        if opcode in _SPECIAL:
            cycles *= _SPECIAL_CYCLES
        self.cycles += fraction * elements * cycles

    def written(self, computation: Computation, instruction: Instruction) -> float:
        """Returns the bytes that an instruction writes."""
        if instruction.opcode == "fusion":
            called = self._module.computations[instruction.called("calls")]
            return sum(
                _update(called, x).num_bytes
                if _is_update_in_place(called, x)
                else x.num_bytes
                for x in _results(called)
            )
        if instruction.opcode in _IN_PLACE:
            return _update(computation, instruction).num_bytes
        if instruction.opcode == "custom-call":
            return instruction.shapes[0].num_bytes  # The others are its workspace.
        return instruction.num_bytes


def _results(fused: Computation) -> list[Instruction]:
    """Returns the instructions whose results a fusion writes."""
    root = fused.root
    results = fused.operands(root) if root.opcode == "tuple" else [root]
    return [_without_bitcasts(fused, result) for result in results]


def _without_bitcasts(fused: Computation, instruction: Instruction) -> Instruction:
    """Returns the instruction that computes what bitcasts only rename."""
    while instruction.opcode == "bitcast":
        (instruction,) = fused.operands(instruction)
    return instruction


def _is_update_in_place(fused: Computation, instruction: Instruction) -> bool:
    """Returns whether a result overwrites a part of a parameter."""
    if instruction.opcode not in _IN_PLACE:
        return False
    updated = fused.operands(instruction)[0]
    return _without_bitcasts(fused, updated).opcode == "parameter"


def _update(computation: Computation, instruction: Instruction) -> Instruction:
    """Returns the operand that an update writes."""
    operands = computation.operands(instruction)
    return operands[-1] if instruction.opcode == "scatter" else operands[1]


def _product(
    instruction: Instruction, operands: list[Instruction]
) -> tuple[float, str]:
    """Returns the FLOPs of a matrix product, and the dtype of its operands."""
    factor = operands[0].shapes[0]
    axes = instruction.numbers("lhs_contracting_dim")
    summed = math.prod(factor.sizes[axis] for axis in axes)
    return 2.0 * instruction.shapes[0].elements * summed, factor.dtype


def _sort_passes(module: Module, instruction: Instruction) -> int:
    """Returns how many kernels a bitonic sort takes, and 1 for other instructions."""
    if instruction.opcode == "fusion":
        called = module.computations[instruction.called("calls")]
        if called.root.opcode == "sort":
            return _sort_passes(module, called.root)
    if instruction.opcode != "sort":
        return 1
    (axis,) = instruction.numbers("dimensions")
    size = instruction.shapes[0].sizes[axis]
    stages = max(0, math.ceil(math.log2(max(1, size) / _SORTED_AT_ONCE)))
    # In stage s, s kernels swap over distances beyond a block, and one within blocks.
    return 1 + sum(stage + 1 for stage in range(1, stages + 1))


def _category(module: Module, instruction: Instruction) -> str:
    """Returns the category of a kernel."""
    target = instruction.text("custom_call_target")
    if target:
        return "product" if "matmul" in target else target.strip("_$")
    opcodes = {instruction.opcode}
    if instruction.opcode == "fusion":
        called = module.computations[instruction.called("calls")]
        opcodes = {x.opcode for x in called.instructions.values()}
    elif instruction.opcode == "copy":
        return "copy"
    return next((_CATEGORIES[x] for x in _CATEGORIES if x in opcodes), "elementwise")


def _operation(instruction: Instruction) -> str:
    """Returns the name of the framework's operation, without the calls around it."""
    name = instruction.text("op_name") or ""
    return re.sub(r"^jit\([^)]*\)/(tensorflow/)?", "", name)
