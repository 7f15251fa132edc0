"""TFRecord framing without TensorFlow, whose import costs seconds and 550 MB.

A record is: length (8 bytes), its masked CRC-32C (4), the payload, its masked CRC-32C
(4), all little-endian.
"""

import functools
import struct
from typing import BinaryIO

import google_crc32c

_BEFORE_PAYLOAD, _AFTER_PAYLOAD = 12, 4  # bytes
FRAME = _BEFORE_PAYLOAD + _AFTER_PAYLOAD  # bytes of a record that are not payload

_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")


def frame(payload: bytes) -> bytes:
    """Returns a payload as it stands in a TFRecord file."""
    return _header(len(payload)) + payload + _checksum(payload)


def payload_of(record: bytes) -> bytes | None:
    """Returns the payload of a record; None if either checksum is wrong.

    Args:
        record: exactly one, as `frame` returns it.
    """
    payload = record[_BEFORE_PAYLOAD:-_AFTER_PAYLOAD]
    header, checksum = record[:_BEFORE_PAYLOAD], record[-_AFTER_PAYLOAD:]
    is_whole = header == _header(len(payload)) and checksum == _checksum(payload)
    return payload if is_whole else None


def read_record(file: BinaryIO) -> bytes:
    """Returns the next record of a file, or what there is of it; nothing at the end."""
    header = file.read(_BEFORE_PAYLOAD)
    if len(header) < _BEFORE_PAYLOAD:
        return header
    (length,) = _LENGTH.unpack_from(header)
    if header != _header(length):
        return header  # the length is not to be trusted
    return header + file.read(length + _AFTER_PAYLOAD)


@functools.lru_cache(maxsize=1 << 16)  # records have few different lengths
def _header(length: int) -> bytes:
    """Returns what precedes a payload of so many bytes."""
    packed = _LENGTH.pack(length)
    return packed + _checksum(packed)


def _checksum(content: bytes) -> bytes:
    """Returns the masked CRC-32C: rotated by 15 bits, plus a constant."""
    crc = google_crc32c.value(content)
    rotated = crc >> 15 | crc << 17
    return _CRC.pack(rotated + 0xA282EAD8 & 0xFFFFFFFF)
