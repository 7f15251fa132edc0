"""Reads the text of a module that XLA has optimized: its computations and shapes.

XLA prints a computation as a header, then an instruction a line, each after those that
it uses, and the last word of a type may be a layout, which is left out here.
"""

import functools
import math
import re
from typing import NamedTuple

_BITS = {
    **dict.fromkeys(("pred", "s8", "u8"), 8),
    **dict.fromkeys(("s16", "u16", "bf16", "f16"), 16),
    **dict.fromkeys(("s32", "u32", "f32"), 32),
    **dict.fromkeys(("s64", "u64", "f64", "c64"), 64),
}
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*)")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


class Shape(NamedTuple):
    """The shape of an array.

    Attributes:
        dtype: XLA's name of the dtype, such as "bf16".
        sizes: of all axes.
    """

    dtype: str
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)

    @property
    def num_bytes(self) -> int:
        """The bytes of all elements; tokens and the like have none."""
        return self.elements * _BITS.get(self.dtype, 0) // 8


class Instruction(NamedTuple):
    """An instruction.

    Attributes:
        name: its name in the module.
        opcode: such as "fusion".
        shapes: of its result; a tuple has several.
        operands: the names of the instructions that it uses.
        arguments: the text between the parentheses.
        attributes: the text after them.
        is_root: whether its result is that of the computation.
    """

    name: str
    opcode: str
    shapes: list[Shape]
    operands: list[str]
    arguments: str
    attributes: str
    is_root: bool

    @property
    def elements(self) -> int:
        """The number of elements of the result."""
        return sum(shape.elements for shape in self.shapes)

    @property
    def num_bytes(self) -> int:
        """The bytes of the result."""
        return sum(shape.num_bytes for shape in self.shapes)

    def called(self, attribute: str) -> str | None:
        """Returns the name of the computation that an attribute names, if it does."""
        match = re.search(rf"\b{attribute}=%?([\w.\-]+)", self.attributes)
        return match and match[1]

    def text(self, key: str) -> str | None:
        """Returns the text of an attribute or key, such as `op_name="..."`."""
        match = re.search(rf'\b{key}"?[=:]"([^"]*)"', self.attributes)
        return match and match[1]

    def numbers(self, key: str) -> list[int]:
        """Returns the numbers of the first attribute whose name begins with `key`."""
        match = re.search(rf'{key}\w*"?[=:][{{\[]([\d,"]*)[}}\]]', self.attributes)
        return [int(digits) for digits in re.findall(r"\d+", match[1])] if match else []


class Computation:
    """A computation: the entry, the body of a loop, or what a fusion computes.

    Attributes:
        instructions: by their names, each after those that it uses.
    """

    def __init__(self) -> None:
        self.instructions: dict[str, Instruction] = {}

    @functools.cached_property
    def root(self) -> Instruction:
        """The instruction whose result is that of the computation."""
        return next(i for i in self.instructions.values() if i.is_root)

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """Returns the instructions that one uses."""
        return [self.instructions[name] for name in instruction.operands]


class Module(NamedTuple):
    """A module.

    Attributes:
        computations: by their names.
        entry: the computation with which a run begins.
    """

    computations: dict[str, Computation]
    entry: Computation


def read_module(text: str) -> Module:
    """Reads the text of a module.

    Raises:
        ValueError: it has no entry.
    """
    computations: dict[str, Computation] = {}
    entry = None
    current = None
    for line in text.splitlines():
        if header := _HEADER.match(line):
            current = computations[header[2]] = Computation()
            entry = current if header[1] else entry
        elif current and (match := _INSTRUCTION.match(line)):
            instruction = _instruction(match[2], match[3], bool(match[1]))
            current.instructions[instruction.name] = instruction
    if entry is None:
        raise ValueError("the text is no module of XLA: it has no entry")
    return Module(computations, entry)


def _instruction(name: str, text: str, is_root: bool) -> Instruction:
    """Reads what stands behind the equals sign: type, opcode, operands, attributes."""
    if text.startswith("("):
        types, text = _parenthesized(text)
    else:
        types, _, text = text.partition(" ")
    opcode, _, _ = text.strip().partition("(")
    arguments, attributes = _parenthesized(text[text.index("(") :])
    shapes = []
    for dtype, sizes in _SHAPE.findall(types):
        shapes.append(Shape(dtype, tuple(map(int, filter(None, sizes.split(","))))))
    operands = re.findall(r"%([\w.\-]+)", arguments)
    return Instruction(name, opcode, shapes, operands, arguments, attributes, is_root)


def _parenthesized(text: str) -> tuple[str, str]:
    """Returns what is within the parentheses at the beginning, and what follows."""
    depth = 0
    for match in re.finditer(r"[()]", text):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return text[1 : match.start()], text[match.end() :]
    raise ValueError(f"a parenthesis is not closed: {text[:80]}")
