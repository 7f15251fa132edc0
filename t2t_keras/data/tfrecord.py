"""TFRecord files of `tf.train.Example`, read and written without TensorFlow.

TensorFlow's import takes three seconds and 550 MB in every worker process of datagen.
"""

import functools
import itertools
import struct
from collections.abc import Iterator, Sequence
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
    return payload if record == frame(payload) else None


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


def field(tag: int, content: bytes) -> bytes:
    """Returns the field with a tag: a message, a string, or packed integers."""
    return b"".join((varint(tag << 3 | 2), varint(len(content)), content))


@functools.lru_cache(1 << 16)
def varint(value: int) -> bytes:
    """Returns an integer in base 128, least significant digit first."""
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def example(
    source: Sequence[int], target: Sequence[int], links: Sequence[int] = ()
) -> bytes:
    """Returns a serialized `tf.train.Example` with int64 lists `inputs` and `targets`.

    The bytes equal TensorFlow's deterministic serialization.

    Args:
        source: ids of the source.
        target: ids of the target.
        links: the positions of tokens that are linked, for each link the target token's
            and the source token's; the list `links`, unless empty.
    """
    features = b""
    for name, ids in ((b"inputs", source), (b"links", links), (b"targets", target)):
        if ids or name != b"links":
            int64_list = field(3, field(1, b"".join(map(varint, ids))))
            features += field(1, field(1, name) + field(2, int64_list))
    return field(1, features)
