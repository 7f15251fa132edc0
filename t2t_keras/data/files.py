"""Writing files so that a partly written file never bears the final name."""

import contextlib
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from t2t_keras.option import UserError

_OPEN_FILE = re.compile(r"/proc/\d+/(task/\d+/)?fd/\d+")


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path, which is renamed to `path` when the block ends.

    Args:
        path: the path of the finished file.

    Yields:
        `{path}.incomplete`; the file is removed if the block raises.
    """
    incomplete = path.with_name(f"{path.name}.incomplete")
    try:
        yield incomplete
        os.replace(incomplete, path)
    except BaseException:
        incomplete.unlink(missing_ok=True)
        raise


def is_special(path: str | Path) -> bool:
    """Returns whether a path is a pipe, a device, or an open file, as `/dev/stdout`."""
    step = Path(path)
    for _ in range(40):  # the system follows no more links
        if not step.is_symlink():
            break
        if _OPEN_FILE.fullmatch(f"{step.parent.resolve()}/{step.name}"):
            return True
        step = step.parent / step.readlink()
    return Path(path).exists() and not Path(path).is_file()


@contextlib.contextmanager
def open_lines(path: str | Path, errors: str = "strict") -> Iterator[TextIO]:
    r"""Opens a file for writing lines, in UTF-8 and with `\n` only, atomically.

    What a link leads to is replaced, and not the link.
    """
    final = Path(os.path.realpath(path))
    with (
        contextlib.nullcontext(path) if is_special(path) else atomic(final) as target,
        open(target, "w", encoding="utf-8", errors=errors, newline="\n") as file,
    ):
        yield file


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Writes a file of lines, as `open_lines` does."""
    with open_lines(path) as file:
        file.writelines(f"{line}\n" for line in lines)


def open_records(path: Path) -> TextIO:
    """Opens a file of lines to add some.

    A process that was killed, or a full disk, may have left a part of a line: it gets
    its end.
    """
    is_whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    file = path.open("a", encoding="utf-8")
    if not is_whole:
        file.write("\n")
    return file


def write_json(path: Path, value: object) -> None:
    """Writes a value as JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with atomic(path) as incomplete:
        incomplete.write_text(text, encoding="utf-8")


def read_json(
    path: Path, otherwise: str = "remove it and run the same command again"
) -> Any:
    """Reads what `write_json` wrote; returns None if there is no such file.

    Args:
        path: the file.
        otherwise: what the user is to do if it is damaged and there is no copy.

    Raises:
        UserError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(
            f"{path} is damaged: it is not valid JSON; restore it from a copy, or "
            f"{otherwise}"
        ) from None


def read_given_json(path: Path) -> Any:
    """Reads a JSON file that another program has written.

    Raises:
        UserError: it cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None


def write_array(path: Path, array: np.ndarray) -> None:
    """Writes an array for `numpy.load`, atomically."""
    content = io.BytesIO()  # given a real file, numpy does not report a full disk
    np.save(content, array)
    with atomic(path) as incomplete:
        incomplete.write_bytes(content.getbuffer())


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, as `sha256sum` prints it.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
