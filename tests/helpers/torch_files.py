"""Files in both forms of `torch.save`, written without PyTorch."""

import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

STORAGES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "uint16": "BFloat16Storage",  # its bits
}


class Name(NamedTuple):
    """A class or a function."""

    module: str
    name: str


class Call(NamedTuple):
    """A function's result."""

    function: object
    arguments: tuple


class Identity(NamedTuple):
    """A persistent id."""

    value: tuple


class Raw(NamedTuple):
    """Opcodes as they are."""

    opcodes: bytes


def pickled(value: object) -> bytes:
    """A pickle of protocol 2."""
    return b"\x80\x02" + opcodes(value) + b"."


def opcodes(value: object) -> bytes:
    match value:
        case Raw(content):
            return content
        case Name(module, name):
            return f"c{module}\n{name}\n".encode()
        case Call(function, arguments):
            return opcodes(function) + opcodes(arguments) + b"R"
        case Identity(inner):
            return opcodes(inner) + b"Q"
        case None | True | False:
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        case int() if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        case int():
            content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return b"\x8a" + bytes([len(content)]) + content
        case str():
            content = value.encode()
            return b"X" + struct.pack("<I", len(content)) + content
        case tuple():
            return b"(" + b"".join(map(opcodes, value)) + b"t"
        case list():
            return b"](" + b"".join(map(opcodes, value)) + b"e"
        case dict():
            items = [opcodes(part) for item in value.items() for part in item]
            return b"}(" + b"".join(items) + b"u"
    raise TypeError(value)


def storage(key: str, size: int, kind: str = "FloatStorage") -> Identity:
    return Identity(("storage", Name("torch", kind), key, "cpu", size))


def tensor(stored: object, offset: int, shape: tuple, strides: tuple) -> Call:
    hooks = Call(Name("collections", "OrderedDict"), ())
    arguments = (stored, offset, shape, strides, False, hooks)
    return Call(Name("torch._utils", "_rebuild_tensor_v2"), arguments)


def described(arrays: dict[str, np.ndarray], is_zip: bool) -> dict[str, Call]:
    """What a pickle says about arrays that are stored under the keys "0", "1" ..."""
    calls = {}
    for key, (name, array) in enumerate(arrays.items()):
        stored = storage(str(key), array.size, STORAGES[str(array.dtype)])
        if not is_zip:
            stored = Identity((*stored.value, None))
        strides = tuple(step // array.itemsize for step in array.strides)
        calls[name] = tensor(stored, 0, array.shape, strides)
    return calls


def write_zip(
    path: Path, value: object, storages: list[bytes], compression: int = 0, **members
) -> Path:
    """Writes the form since PyTorch 1.6; `members` are further ones."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled(value))
        for name, content in members.items():
            archive.writestr(f"archive/{name}", content)
        for key, content in enumerate(storages):
            archive.writestr(f"archive/data/{key}", content)
        archive.writestr("archive/version", "3\n")
    return path


def write_legacy(path: Path, value: object, storages: list[bytes], size: int = 4):
    """Writes the form before PyTorch 1.6; `size` is that of an element."""
    facts = {"protocol_version": 1001, "little_endian": True}
    keys = [str(key) for key in range(len(storages))]
    parts = [0x1950A86A20F9469CFC6C, 1001, facts, value, keys]
    content = b"".join(map(pickled, parts))
    for stored in storages:
        content += struct.pack("<q", len(stored) // size) + stored
    path.write_bytes(content)
    return path


def save(arrays: dict[str, np.ndarray], path: Path, is_zip: bool) -> Path:
    """Writes arrays, which have elements of one size, as `torch.save` does."""
    storages = [array.tobytes() for array in arrays.values()]
    rows = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    value = described(rows, is_zip)
    if is_zip:
        return write_zip(path, value, storages)
    return write_legacy(path, value, storages, next(iter(arrays.values())).itemsize)
