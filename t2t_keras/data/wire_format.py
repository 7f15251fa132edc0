"""The wire format of protocol buffers, as far as records and requests need it."""

import functools


def field(number: int, content: bytes) -> bytes:
    """Returns a field that holds a message, a string, or packed numbers."""
    return b"".join((varint(number << 3 | 2), varint(len(content)), content))


@functools.lru_cache(1 << 16)
def varint(number: int) -> bytes:
    """Returns an integer in base 128, least significant digit first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
