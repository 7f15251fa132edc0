"""One training example as a protocol buffer, without TensorFlow.

Written by hand because TensorFlow's own classes come only with all of TensorFlow:
550 MB and three seconds for every worker process of datagen.
"""

import functools
from collections.abc import Sequence


def example(source: Sequence[int], target: Sequence[int]) -> bytes:
    """Returns a serialised `tf.train.Example` with int64 lists `inputs` and `targets`.

    The bytes are those of TensorFlow's deterministic serialisation.
    """
    return _field(1, _feature(b"inputs", source) + _feature(b"targets", target))


def _feature(name: bytes, ids: Sequence[int]) -> bytes:
    """Returns the entry of a `tf.train.Features` map with an int64 list."""
    int64_list = _field(3, _field(1, b"".join(map(_varint, ids))))
    return _field(1, _field(1, name) + _field(2, int64_list))


def _field(number: int, content: bytes) -> bytes:
    """Returns a length-delimited field of a protocol buffer."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


@functools.cache
def _varint(number: int) -> bytes:
    """Returns a number as protocol buffers write it: 7 bits a byte, low ones first."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
