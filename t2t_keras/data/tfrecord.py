"""TFRecord framing without TensorFlow, whose import costs seconds and 550 MB.

A record is: length (8 bytes), its masked CRC-32C (4), the payload, its masked CRC-32C
(4), all little-endian.
"""

import functools
import struct
from collections.abc import Sequence

import numpy as np

BEFORE_PAYLOAD = 12  # bytes
FRAME = 16  # bytes of a record that are not payload

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
_ALL_ONES = 0xFFFFFFFF
_SHORT = 4096  # bytes up to which a payload is checked by table


def frames(payloads: Sequence[bytes]) -> list[bytes]:
    """Returns the payloads as they stand in a TFRecord file."""
    lengths = [struct.pack("<Q", len(payload)) for payload in payloads]
    checks = zip(_masked_crcs(lengths), _masked_crcs(payloads), strict=True)
    return [
        length + struct.pack("<I", before) + payload + struct.pack("<I", after)
        for length, payload, (before, after) in zip(
            lengths, payloads, checks, strict=True
        )
    ]


def _masked_crcs(texts: Sequence[bytes]) -> list[int]:
    """Returns what TFRecords hold in place of each CRC: rotated, plus a constant."""
    crcs = crc32c(texts)
    rotated = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    return (rotated + np.uint32(0xA282EAD8)).tolist()


def crc32c(texts: Sequence[bytes]) -> np.ndarray:
    """Returns the CRC-32C of each text, uint32 [N].

    A CRC is linear over XOR: each byte contributes a term that depends on its value
    and on how many bytes follow it, and the start value one that depends on the length.
    """
    size = np.array([len(text) for text in texts], np.int64)
    if size.max(initial=0) > _SHORT:
        return np.concatenate([_crc32c_of_one(text) for text in texts])
    byte_terms, start_terms = _terms()
    crcs = start_terms[size]
    data = np.frombuffer(b"".join(texts), np.uint8)
    if len(data):
        ends = np.cumsum(size)
        following = np.repeat(ends, size) - np.arange(1, len(data) + 1)
        has_bytes = size > 0
        terms = byte_terms.ravel()[following * 256 + data]
        crcs[has_bytes] ^= np.bitwise_xor.reduceat(terms, (ends - size)[has_bytes])
    return crcs ^ np.uint32(_ALL_ONES)


def _crc32c_of_one(text: bytes) -> np.ndarray:
    """Returns the CRC-32C of one text of any length, uint32 [1]."""
    if len(text) <= _SHORT:
        return crc32c([text])
    table, crc = _table().tolist(), _ALL_ONES
    for byte in text:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return np.array([crc ^ _ALL_ONES], np.uint32)


@functools.cache
def _table() -> np.ndarray:
    """What a byte makes of an empty register, uint32 [256]."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * np.uint32(
            _POLYNOMIAL
        )
    return table


@functools.cache
def _terms() -> tuple[np.ndarray, np.ndarray]:
    """Returns the terms of bytes and of start values.

    Returns:
        uint32 [_SHORT, 256]: of each byte value with so many bytes behind it; and
        uint32 [_SHORT + 1]: of the start value with so many bytes behind it.
    """
    table = _table()
    byte_terms = np.empty([_SHORT, 256], np.uint32)
    start_terms = np.empty(_SHORT + 1, np.uint32)
    row, start = table, np.uint32(_ALL_ONES)
    for i in range(_SHORT):
        byte_terms[i], start_terms[i] = row, start
        row = table[row & np.uint32(0xFF)] ^ (row >> np.uint32(8))
        start = table[start & np.uint32(0xFF)] ^ (start >> np.uint32(8))
    start_terms[_SHORT] = start
    return byte_terms, start_terms
