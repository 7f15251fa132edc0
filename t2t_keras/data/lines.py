"""The lines of text files: what neither magic bytes nor a name call something else."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras.data.text_files import (
    HEAD,
    compression,
    decoded_lines,
    decompressed,
    open_binary,
    readable,
    uncompressed_suffix,
)
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import io


_UNPACK = "unpack it (`{}`) and give the text files in it"
_CONVERT = "convert it (`iconv -f {} -t UTF-8 {{name}} > utf8.txt`)"
# The first bytes of files that are not UTF-8 text -> what they are, and what to do with
# the file {name}.
_NOT_TEXT = {
    rb"PK(?:\x03\x04|\x05\x06|\x07\x08)": (
        "a ZIP archive or an office document",
        _UNPACK.format("unzip {name}"),
    ),
    rb"(?s:.{257})ustar": ("a tar archive", _UNPACK.format("tar -xf {name}")),
    rb"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK.format("7z x {name}")),
    rb"Rar!\x1a\x07": ("a RAR archive", _UNPACK.format("unrar x {name}")),
    rb"\x1f[\x9d\xa0]|\x04\x22\x4d\x18|LZIP\x01|\x5d\x00\x00|\xff\x06\x00\x00sNaPpY": (
        "a compressed file",
        "decompress it, or compress it with gzip, xz, zstd or bzip2",
    ),
    rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff": ("in UTF-32", _CONVERT.format("UTF-32")),
    rb"\xff\xfe|\xfe\xff": ("in UTF-16", _CONVERT.format("UTF-16")),
}


def read_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file, plain or compressed; see `decoded_lines`.

    Raises:
        UserError: the file cannot be read, is of another format, or a line is not
            UTF-8.
    """
    with readable(path), open_binary(path) as file:
        require_text(file, str(path))
        yield from decoded_lines(file, str(path))


def stream_lines(file: "io.BufferedReader[Any]", name: str) -> Iterator[str]:
    """Yields the lines of an open file, as `read_lines` does.

    Args:
        file: the file, which may be a pipe.
        name: the name of the file in messages.
    """
    with readable(name), decompressed(file, name) as content:
        require_text(content, name)
        yield from decoded_lines(content, name)


def require_text_file(path: str | Path) -> None:
    """Refuses a file as `require_text` does; accepts absent files and pipes.

    Raises:
        UserError: the file cannot be read, or is of another format.
    """
    if Path(path).is_file():
        with readable(path), open_binary(path) as file:
            require_text(file, str(path))


def require_text(file: "io.BufferedReader[Any]", name: str) -> None:
    """Raises UserError if a file has another format than lines of text.

    Args:
        file: the open and decompressed file, at its beginning, where it stays.
        name: the name of the file in messages.

    Raises:
        UserError: it is not a text; the message says what to do.
    """
    head = file.peek(HEAD)[:HEAD]
    if format := pair_format(name, head):
        languages = " with --languages SOURCE-TARGET" if format.needs_languages else ""
        raise UserError(
            f"{name} is {format.title}, which has both sides of its pairs, not text "
            "with one sentence per line: to train on it, name the same file as source "
            f"and as target{languages}, or write `pairs = "
            f'"{name}"` in a --mixture; for other uses write the sentences of one '
            "side into a text file"
        )
    if compression(head):
        raise UserError(f"{name} is compressed twice; decompress it once")
    for magic, (title, advice) in _NOT_TEXT.items():
        if re.match(magic, head):
            raise UserError(
                f"{name} is {title}, not UTF-8 text with one sentence per line; "
                f"{advice.format(name=name)}"
            )


def pair_format(name: str | Path, head: bytes) -> Any:
    """Returns the format of a file of pairs, a `Format`; None: it is text.

    Args:
        name: the name of the file, whose suffix tells the format unless `head` does.
        head: the decompressed beginning of the file.
    """
    formats = load_plugins("formats")
    for format in formats.values():
        if format.magic and head.startswith(format.magic):
            return format
    return formats.get(uncompressed_suffix(name).lower())
