"""Byte ranges of text files, which several processes can read.

A range has the lines that begin in it, so each line belongs to one range. Once the
lines of all ranges are counted, reading can begin near any line (`read_lines_from`).
"""

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import (
    LONGEST_LINE,
    decoded_lines,
    is_compressed,
    raw_lines,
    readable,
    require_text_file,
)

# The index of a line, from 0, and the offset of its first byte.
Position = tuple[int, int]

_RANGE = 1 << 25  # bytes of a range


@dataclasses.dataclass(frozen=True)
class ByteRange:
    """The lines of a file that begin in some of its bytes.

    Attributes:
        path: the file.
        start: the first byte.
        stop: the end of the range.
    """

    path: Path
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class LineCount:
    """What a byte range has.

    Attributes:
        lines: the number of lines.
        offset: that of the first line.
        characters: the different characters, without white space at the ends of lines.
        is_faulty: whether there is a line that is no text.
    """

    lines: int = 0
    offset: int = 0
    characters: frozenset[str] = frozenset()
    is_faulty: bool = False


def byte_ranges(path: str | Path) -> list[ByteRange] | None:
    """Divides a text file into ranges.

    Returns:
        None if the file can only be read from its beginning: it is compressed or a
        pipe.

    Raises:
        UserError: the file cannot be read, or is of another format.
    """
    if not Path(path).is_file() or is_compressed(path):
        return None
    require_text_file(path)
    size = Path(path).stat().st_size
    ranges = []
    for start in range(0, size, _RANGE):
        ranges.append(ByteRange(Path(path), start, min(start + _RANGE, size)))
    return ranges


def count_lines(part: ByteRange) -> LineCount:
    """Counts the lines of a range, and decodes each of them.

    Raises:
        UserError: the file cannot be read.
    """
    with readable(part.path), part.path.open("rb", 1 << 20) as file:
        if part.start:  # the line that begins before it, or only its end
            file.seek(part.start - 1)
            file.readline(LONGEST_LINE + 1)
        offset = file.tell()
        position = offset
        count = 0
        characters = set[str]()
        try:
            for line in raw_lines(file, str(part.path)):
                if position >= part.stop:
                    break
                text = line.decode("utf-8")
                characters.update(text.removeprefix("\ufeff" * (not position)).strip())
                position += len(line)
                count += 1
        except (UserError, UnicodeDecodeError):
            return LineCount(is_faulty=True)
    return LineCount(count, offset, frozenset(characters))


def line_positions(counts: Iterable[LineCount]) -> list[Position]:
    """Returns where the lines of a file can be read from.

    Args:
        counts: what its ranges have, in order.
    """
    lines = 0
    positions = []
    for count in counts:
        if count.lines:
            positions.append((lines, count.offset))
        lines += count.lines
    return positions


def read_lines_from(
    path: str | Path, index: int, positions: Sequence[Position]
) -> Iterator[str]:
    """Yields the lines of a file from one on, as `lines.read_lines` does.

    Args:
        path: the file.
        index: the index of the first line.
        positions: see `line_positions`.
    """
    nearest = bisect.bisect_right(positions, index, key=lambda position: position[0])
    line, offset = positions[nearest - 1] if nearest else (0, 0)
    with readable(path), open(path, "rb", 1 << 20) as file:
        file.seek(offset)
        lines = decoded_lines(file, str(path), start=line + 1)
        yield from itertools.islice(lines, index - line, None)
