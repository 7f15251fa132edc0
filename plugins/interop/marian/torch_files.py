"""Reads the tensors in files of `torch.save`, such as `pytorch_model.bin`.

Such a file is a pickle, which can name any function and have it called. Here a pickle
is never loaded. An interpreter follows those of its opcodes that build dictionaries of
tensors; names are strings to it, nothing is imported and nothing is called.

There are two forms. Since PyTorch 1.6 a file is a ZIP archive with `data.pkl` and a
member for each storage. Older ones are five pickles one after the other (a magic
number, a version, facts of the machine, the tensors, the keys of the storages), then
the storages.
"""

import io
import math
import mmap
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import readable, require_fetched_file

# The pickles of a large Marian model have 100 kB. Each byte may become an object of 64.
_MAX_PICKLE_BYTES = 1 << 20
# A file may name a matrix several times, and its tensors share one storage.
_MAX_COPIES = 4
_MAX_AXES = 8

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_BFLOAT16 = "torch BFloat16Storage"
# By the class of the storage, as pickles name it. bfloat16 is read as its bits.
_DTYPES = {
    "torch FloatStorage": "<f4",
    "torch HalfStorage": "<f2",
    _BFLOAT16: "<u2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
    "torch ShortStorage": "<i2",
    "torch CharStorage": "<i1",
    "torch ByteStorage": "<u1",
}
_DICTIONARY = "collections OrderedDict"
_TENSOR = "torch._utils _rebuild_tensor_v2"
_PARAMETER = "torch._utils _rebuild_parameter"


class _Name(str):
    """The module and the name of a class or a function in a pickle."""


class _Storage(NamedTuple):
    """What a pickle says about a storage: its class, key and number of elements."""

    storage_type: str
    key: str
    size: int


class _Tensor(NamedTuple):
    """What a pickle says about a tensor: where in a storage its elements are."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_torch_file(path: Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a file that `torch.save(model.state_dict(), path)` wrote.

    Those of bfloat16 become float32. The others are views of the file, which is mapped
    into memory.

    Args:
        path: the file.

    Raises:
        UserError: it cannot be read, is not of this kind, is damaged, or holds anything
            but named tensors of floating-point numbers with at most 32 bits or of
            integers.
    """
    require_fetched_file(path)
    with readable(path), open(path, "rb") as file:
        head = file.read(2)
        if not head:
            raise UserError(f"{path} is empty; fetch it again")
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        if head == b"PK":
            return _read_zip(path, content)
        if head[:1] == b"\x80":
            return _read_legacy(content)
    except _ForeignError as error:
        raise UserError(f"{path} {error}") from None
    # What zipfile, pickletools and struct raise, and a stack that is too short.
    except (
        *(zipfile.BadZipFile, NotImplementedError, struct.error, EOFError),
        *(ValueError, LookupError, TypeError, OverflowError),
    ):
        raise UserError(f"{path} is cut off or damaged; fetch it again") from None
    description = "a page of HTML" if head[:1] == b"<" else "another file"
    raise UserError(
        f"{path} is {description}, not tensors that PyTorch has saved; fetch it again"
    )


class _ForeignError(Exception):
    """The content is not what this module reads; the message is the predicate."""


def _read_zip(path: Path, content: memoryview) -> dict[str, np.ndarray]:
    """Reads the form that PyTorch writes since 1.6; see `read_torch_file`."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise _ForeignError("is a ZIP archive, but not one that PyTorch has saved")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}byteorder" in members:
        byte_order = bytes(_stored(content, members[f"{folder}byteorder"])[:20])
        if byte_order != b"little":
            raise _ForeignError(
                f"has the byte order {byte_order!r}, and only b'little' can be read"
            )
    tensors = _tensors(_interpret(_stream(_stored(content, members[pickles[0]]))))
    storages = {}
    for tensor in tensors.values():
        key = tensor.storage.key
        storages[key] = _stored(content, members[f"{folder}data/{key}"])
    return _arrays(tensors, storages, len(content))


def _stored(content: memoryview, member: zipfile.ZipInfo) -> memoryview:
    """Returns the bytes of a member, which is not compressed, without a copy."""
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise _ForeignError("is a compressed archive, which PyTorch does not write")
    # The header in the central directory may have other fields than this one.
    start = member.header_offset + 30
    name_size, extra_size = struct.unpack("<HH", content[start - 4 : start])
    start += name_size + extra_size
    return _slice(content, start, member.file_size)


def _read_legacy(content: memoryview) -> dict[str, np.ndarray]:
    """Reads the form that PyTorch wrote before 1.6; see `read_torch_file`."""
    stream = _stream(content)
    if _interpret(stream) != _MAGIC_NUMBER:
        raise _ForeignError("is a pickle, but not one that PyTorch has saved")
    if _interpret(stream) != _VERSION:
        raise _ForeignError(f"has another version of PyTorch's form than {_VERSION}")
    _interpret(stream)  # Storages are little-endian whatever the machine was.
    tensors = _tensors(_interpret(stream))
    keys = [_require(key, str) for key in _require(_interpret(stream), list)]
    start = stream.tell()
    sizes = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    storages = {}
    for key in keys:
        storage = sizes[key]
        if _slice(content, start, 8) != struct.pack("<q", storage.size):
            raise ValueError(f"the storage {key} has another size")
        num_bytes = storage.size * np.dtype(_DTYPES[storage.storage_type]).itemsize
        storages[key] = _slice(content, start + 8, num_bytes)
        start += 8 + num_bytes
    return _arrays(tensors, storages, len(content))


def _stream(content: memoryview) -> io.BytesIO:
    """Returns the part of a file in which its pickles must end."""
    return io.BytesIO(content[:_MAX_PICKLE_BYTES])


def _slice(content: memoryview, start: int, size: int) -> memoryview:
    """Returns a part of the content; raises ValueError if it has fewer bytes."""
    if not 0 <= start <= start + size <= len(content):
        raise ValueError("the file is too short")
    return content[start : start + size]


def _tensors(value: object) -> dict[str, _Tensor]:
    """Returns the value of a pickle if it is named tensors.

    Raises:
        _ForeignError: it is something else.
    """
    if isinstance(value, _Tensor):
        raise _ForeignError("holds a tensor without a name, not a model")
    if not isinstance(value, dict) or not value:
        raise _ForeignError("holds no named tensors, so it is not a model")
    for name, tensor in value.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise _ForeignError(
                f"has the entry {name!r:.80}, which is not a tensor: it may be a "
                "checkpoint for training, of which only the model's state_dict can be "
                "read"
            )
    return value


def _arrays(
    tensors: Mapping[str, _Tensor], storages: Mapping[str, memoryview], file_size: int
) -> dict[str, np.ndarray]:
    """Returns the tensors as views of their storages, or bfloat16 as float32.

    Raises:
        _ForeignError: their storages do not have all their elements, or the tensors
            together are much larger than the file.
    """
    arrays = {}
    num_bytes = 0
    for name, tensor in tensors.items():
        storage, offset, shape, strides = tensor
        dtype = np.dtype(_DTYPES[storage.storage_type])
        content = storages[storage.key]
        size = math.prod(shape)
        last_index = offset + sum(
            (length - 1) * stride for length, stride in zip(shape, strides, strict=True)
        )
        if storage.size * dtype.itemsize > len(content):
            raise ValueError("a storage is too short")
        # A stride of 0 repeats elements.
        if size and (last_index >= storage.size or size > storage.size):
            raise _ForeignError(f"has the tensor {name!r:.80} beyond its storage")
        num_bytes += size * dtype.itemsize
        if num_bytes > _MAX_COPIES * file_size:
            raise _ForeignError("has tensors that are much larger than the file")
        steps = [stride * dtype.itemsize for stride in strides]
        array: np.ndarray = (
            np.ndarray(shape, dtype, content, offset * dtype.itemsize, steps)
            if size
            else np.zeros(shape, dtype)
        )
        if storage.storage_type == _BFLOAT16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = array
    return arrays


# What opcodes put on the stack.
_CONSTANTS: dict[str, Callable[[], Any]] = {
    **{"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False},
    **{"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple},
}
# How many values at the top of the stack these opcodes take, without a mark.
_UNMARKED = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2}


def _interpret(stream: io.BytesIO) -> Any:
    """Returns the value of a pickle of protocol 2, and reads no more than that.

    Raises:
        _ForeignError: it holds something else than tensors in dictionaries and lists.
        ValueError, LookupError, TypeError: it is damaged.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name in _UNMARKED:
            marks.append(len(stack) - _UNMARKED[opcode.name])
        match opcode.name:
            case "PROTO":
                pass
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(argument)
            case name if name in _CONSTANTS:
                stack.append(_CONSTANTS[name]())
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(_above_mark(stack, marks)))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                stack.append(_known_name(argument))
            case "BINPERSID":
                stack.append(_storage(stack.pop()))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(_result(stack.pop(), arguments))
            case "BUILD":  # the attributes of an OrderedDict, such as `_metadata`
                stack.pop()
                _require(stack[-1], dict)
            case "APPEND" | "APPENDS":
                values = _above_mark(stack, marks)
                _require(stack[-1], list).extend(values)
            case "SETITEM" | "SETITEMS":
                values = _above_mark(stack, marks)
                _update(stack[-1], values)
            case name:
                raise _ForeignError(
                    f"has the pickle opcode {name}, which tensors do not need"
                )
    raise ValueError("the pickle has no end")


def _above_mark(stack: list[Any], marks: list[int]) -> list[Any]:
    """Takes the values above the last mark off the stack."""
    start = marks.pop()
    values = stack[start:]
    del stack[start:]
    return values


def _update(dictionary: Any, values: list[Any]) -> None:
    """Adds keys and values, which alternate in a list, to a dictionary."""
    # The hash of nested tuples could take forever.
    keys = [_require(key, str | int) for key in values[::2]]
    items = zip(keys, values[1::2], strict=True)
    _require(dictionary, dict).update(items)


def _require(value: Any, expected: type | UnionType) -> Any:
    """Returns a value of a type; raises TypeError if it is of another."""
    if not isinstance(value, expected):
        raise TypeError(f"not of the type {expected}")
    return value


def _known_name(name: str) -> _Name:
    """Returns a name in a pickle, "MODULE NAME".

    Raises:
        _ForeignError: it is not one of those with which PyTorch describes tensors.
    """
    shown = f"{name.replace(' ', '.')!r:.80}"
    if name.startswith("torch ") and name.endswith("Storage"):
        if name not in _DTYPES:
            kinds = ", ".join(name.removeprefix("torch ") for name in _DTYPES)
            raise _ForeignError(
                f"holds a {shown}, and the kinds that can be read are {kinds}"
            )
    elif name not in (_DICTIONARY, _TENSOR, _PARAMETER):
        raise _ForeignError(
            f"holds {shown}, and only named tensors can be read, such as those of a "
            "model's state_dict"
        )
    return _Name(name)


def _storage(identity: Any) -> _Storage:
    """Returns the storage that a persistent id describes."""
    label, storage_type, key, _, size, *view = _require(identity, tuple)
    if label != "storage" or _require(storage_type, _Name) not in _DTYPES:
        raise TypeError("not a storage")
    if view not in ([], [None]):  # of PyTorch before 0.4
        raise _ForeignError("has a view of a storage, which cannot be read")
    return _Storage(storage_type, _require(key, str), _size(size))


def _result(name: Any, arguments: Any) -> Any:
    """Returns what a function in a pickle would return to PyTorch."""
    arguments = _require(arguments, tuple)
    match _require(name, _Name), arguments:
        case (str(name), ()) if name == _DICTIONARY:
            return {}
        case (str(name), (_Tensor() as tensor, *_)) if name == _PARAMETER:
            return tensor
        case (str(name), (_Storage() as storage, offset, shape, strides, *_)) if (
            name == _TENSOR and len(shape) == len(strides) <= _MAX_AXES
        ):
            sizes = tuple(map(_size, shape))
            return _Tensor(storage, _size(offset), sizes, tuple(map(_size, strides)))
    raise TypeError("not a call")


def _size(value: Any) -> int:
    """Returns a size or a stride; raises an error if it cannot be one."""
    if type(value) is not int or not 0 <= value < 2**48:
        raise ValueError("not a size")
    return value
