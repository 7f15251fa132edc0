r"""Reading and writing text files: one sentence per line, UTF-8, `\n` only."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from t2t_keras.data import sources
from t2t_keras.errors import UserError

STDIN, STDOUT = 0, 1


def read_lines(path: str | None) -> Iterator[str]:
    """Yields the lines of a file, plain or `.gz`, or of standard input.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8.
    """
    if path is not None:
        yield from sources.read_lines(path)
        return
    with open(STDIN, "rb", closefd=False) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise UserError(
                    f"standard input, line {number}: not valid UTF-8"
                ) from None
            yield text.removesuffix("\n").removesuffix("\r")


def count_lines(path: str | Path | None) -> int | None:
    """Returns the number of lines that `read_lines` will yield; None if unknown.

    Only a regular file can be read twice.
    """
    if path is None or not Path(path).is_file():
        return None
    return sum(1 for _ in sources.read_lines(path))


def _open_text(file: int | str | Path, closefd: bool = True) -> TextIO:
    return open(file, "w", encoding="utf-8", newline="\n", closefd=closefd)


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Opens a file, or standard output, for writing lines.

    A file gets its name only when it is complete. After Ctrl-C the lines written so far
    stay in `{path}.incomplete`.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the message names the incomplete file.
    """
    is_special = path is not None and Path(path).exists() and not Path(path).is_file()
    if path is None or is_special:  # standard output, or a pipe or a device
        with _open_text(STDOUT if path is None else path, path is not None) as file:
            yield file
        return
    incomplete = Path(f"{path}.incomplete")
    try:
        with _open_text(incomplete) as file:
            yield file
        os.replace(incomplete, path)
    except KeyboardInterrupt:
        lines = count_lines(incomplete)
        if not lines:
            incomplete.unlink(missing_ok=True)
            raise
        raise KeyboardInterrupt(
            f"the first {lines:,} lines of output are in {incomplete}"
        ) from None
    except BaseException:
        incomplete.unlink(missing_ok=True)
        raise
