"""The TFRecord format, read and written without TensorFlow."""

import functools
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from t2t_keras.errors import UserError

HEADER_BYTES = 12
CHECKSUM_BYTES = 4
FRAME = HEADER_BYTES + CHECKSUM_BYTES  # bytes of a record that are not payload
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


def frame(payload: bytes) -> bytes:
    """Returns a payload as it stands in a TFRecord file.

    That is: its length (8 bytes), the masked CRC-32C of the length (4), the payload,
    the masked CRC-32C of the payload (4), all little-endian.
    """
    return header(len(payload)) + payload + _checksum(payload)


def unframe(record: bytes) -> bytes | None:
    """Returns the payload of a framed record, or None if a checksum is wrong."""
    payload = record[HEADER_BYTES:-CHECKSUM_BYTES]
    is_whole = record[:HEADER_BYTES] == header(len(payload))
    is_whole = is_whole and record[-CHECKSUM_BYTES:] == _checksum(payload)
    return payload if is_whole else None


@functools.lru_cache(maxsize=1 << 16)  # records have few different lengths
def header(length: int) -> bytes:
    """Returns what precedes a payload of a length."""
    packed = _LENGTH.pack(length)
    return packed + _checksum(packed)


def _checksum(content: bytes) -> bytes:
    """Returns the masked CRC-32C: rotated by 15 bits, plus a constant."""
    crc = google_crc32c.value(content)
    rotated = crc >> 15 | crc << 17
    return _CRC.pack(rotated + 0xA282EAD8 & 0xFFFFFFFF)


def read_payloads(shard: Path) -> Iterator[bytes]:
    """Yields the payloads of a shard, and verifies their checksums."""
    with shard.open("rb", buffering=1 << 20) as file:
        offset = 0
        for record_number in itertools.count(1):
            record = file.read(HEADER_BYTES)
            if not record:
                return
            length = int.from_bytes(record[: _LENGTH.size], "little")
            if record == header(length):  # otherwise the length is not reliable
                record += file.read(length + CHECKSUM_BYTES)
            payload = unframe(record)
            if payload is None:
                raise damaged_record(shard, record_number, offset)
            yield payload
            offset += len(record)


def damaged_record(shard: Path, record_number: int, offset: int) -> UserError:
    """Returns the error for a record with a number, from 1, at a byte of a shard."""
    return UserError(
        f"{shard} is damaged: the checksum of record {record_number:,} (at byte "
        f"{offset:,}) is wrong; copy the file again, or remove the data and run "
        "`t2t datagen` again"
    )
