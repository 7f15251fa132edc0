"""Lines of files of which some are faulty: too long, or not UTF-8."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from t2t_keras.files.text_files import (
    LONGEST_LINE,
    decompressed,
    readable,
    require_text,
)


class CheckedLine(NamedTuple):
    """A line of a file.

    Attributes:
        text: the text, without its end; "": the line is faulty.
        fault: what is wrong with the line; "": nothing.
    """

    text: str
    fault: str = ""


class CheckedFile:
    """A text file, plain or compressed, whose faulty lines do not stop the others.

    Args:
        path: the file.

    Attributes:
        path: the same.
        size: the number of its bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._file: io.BufferedReader[Any] | None = None

    @property
    def position(self) -> int:
        """How many bytes of the file are read: all once it is closed."""
        if self._file is None or self._file.closed:
            return self.size
        return self._file.tell()

    def lines(self) -> Iterator[CheckedLine]:
        """Yields the lines, as `data.text_files.decoded_lines` does.

        Raises:
            UserError: the file cannot be read, is damaged, or is not a text.
        """
        name = str(self.path)
        with readable(name):
            file = open(name, "rb", buffering=1 << 20)  # noqa: SIM115  (closed below)
            self._file = cast("io.BufferedReader[Any]", file)
            with decompressed(self._file, name) as content:
                require_text(content, name)
                for index, raw in enumerate(iter(lambda: _read_line(content), b"")):
                    yield _checked(raw, is_first=index == 0)


def _read_line(content: "io.BufferedReader[Any]") -> bytes:
    """Returns a line with its end; of one that is too long, only the beginning."""
    line: bytes = content.readline(LONGEST_LINE + 1)
    chunk = line
    while len(chunk) > LONGEST_LINE and not chunk.endswith(b"\n"):
        chunk = content.readline(LONGEST_LINE + 1)
    return line


def _checked(raw: bytes, is_first: bool) -> CheckedLine:
    """Returns a line as text, or what is wrong with it."""
    if len(raw) > LONGEST_LINE:
        return CheckedLine("", f"more than {LONGEST_LINE:,} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return CheckedLine("", f"byte {raw[error.start]:#04x} is not valid UTF-8")
    if is_first:
        text = text.removeprefix("\ufeff")
    return CheckedLine(text.removesuffix("\n").removesuffix("\r"))
