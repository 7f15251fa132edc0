r"""Text as the verbs read and write it: a sentence a line, UTF-8, `\n` only."""

import contextlib
from collections.abc import Iterator
from typing import TextIO

from t2t_keras.data import sources
from t2t_keras.data.files import open_lines
from t2t_keras.errors import UserError

_STDIN, _STDOUT = 0, 1


def read_lines(path: str | None) -> Iterator[str]:
    """Yields the lines of a file, plain or `.gz`, or of standard input.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8.
    """
    if path is not None:
        yield from sources.read_lines(path)
        return
    with open(_STDIN, "rb", closefd=False) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise UserError(
                    f"standard input, line {number}: not valid UTF-8"
                ) from None
            yield text.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Opens a file, or standard output, for writing lines.

    A file bears its name only once it is complete.
    """
    if path is None:
        kind = {"mode": "w", "encoding": "utf-8", "newline": "\n"}
        with open(_STDOUT, closefd=False, **kind) as file:
            yield file
    else:
        with open_lines(path) as file:
            yield file
