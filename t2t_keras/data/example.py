"""One training example as a protocol buffer, without TensorFlow.

Written by hand because TensorFlow's own classes come only with all of TensorFlow:
550 MB and three seconds for every worker process of datagen.
"""

import functools
from collections.abc import Sequence

# Of the length-delimited fields 1 to 3.
_TAGS = {number: bytes([number << 3 | 2]) for number in (1, 2, 3)}


def example(source: Sequence[int], target: Sequence[int]) -> bytes:
    """Returns a serialised `tf.train.Example` with int64 lists `inputs` and `targets`.

    The bytes are those of TensorFlow's deterministic serialisation.
    """
    return _field(1, _feature(b"inputs", source) + _feature(b"targets", target))


def _feature(name: bytes, ids: Sequence[int]) -> bytes:
    """Returns the entry of a `tf.train.Features` map with an int64 list."""
    try:
        content = b"".join(map(_varints().__getitem__, ids))
    except IndexError:
        content = b"".join(map(_varint, ids))
    int64_list = _field(3, _field(1, content))
    return _field(1, _field(1, name) + _field(2, int64_list))


def _field(number: int, content: bytes) -> bytes:
    """Returns a length-delimited field of a protocol buffer."""
    return b"".join((_TAGS[number], _varint(len(content)), content))


@functools.cache
def _varints() -> list[bytes]:
    """All ids of a usual vocabulary: half of what encoding would otherwise take us."""
    return [_varint(number) for number in range(1 << 16)]


@functools.cache
def _varint(number: int) -> bytes:
    """Returns a number as protocol buffers write it: 7 bits a byte, low ones first."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
