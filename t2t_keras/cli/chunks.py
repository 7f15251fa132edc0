"""Lines that are sorted by length, decoded together and written."""

from collections.abc import Iterator

MAX_LINES = 2000
MAX_CHARACTERS = 4_000_000


def chunks(lines: Iterator[str], one_by_one: bool) -> Iterator[list[str]]:
    """Yields lines to decode together, and reads no further than these."""
    chunk: list[str] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += len(line)
        is_full = len(chunk) == MAX_LINES or characters >= MAX_CHARACTERS
        if is_full or one_by_one:
            yield chunk
            chunk = []
            characters = 0
    if chunk:
        yield chunk
