"""Text files, plain or compressed, and their lines.

Compression is recognised by the first bytes. Everything else is text, unless a magic
number, a byte order mark or the name says that it is another format.
"""

import bz2
import contextlib
import gzip
import io
import itertools
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, first_line, require_extra

try:
    from backports import zstd
except ImportError:  # it is in the extra [data]
    zstd = None  # type: ignore[assignment]

COMPRESSED = (".gz", ".xz", ".zst", ".bz2")  # the suffixes of compressed files
_KINDS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}
_KINDS |= {".tgz": "gzip", ".tar": "tar", ".zip": "zip"}
_OPEN: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
# The bytes with which compressed content begins. None of them begins a text.
_MAGIC = {
    ".gz": (b"\x1f\x8b\x08",),
    ".xz": (b"\xfd7zXZ\x00",),
    ".zst": (b"\x28\xb5\x2f\xfd",),
    ".bz2": tuple(
        b"BZh%d" % level + block
        for level in range(1, 10)
        for block in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
    ),
}
# What is raised for a compressed file or an archive that is cut off, or is none.
_DAMAGE: tuple[type[Exception], ...] = (
    *(EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, tarfile.ReadError),
    zipfile.BadZipFile,
)
# What is also raised for a ZIP file whose parts seem to be before its beginning, or to
# be encrypted or compressed by another method.
ZIP_DAMAGE: tuple[type[Exception], ...] = (
    *_DAMAGE,
    *(OSError, ValueError, LookupError, RuntimeError),
)
_BZIP2_DAMAGE = "Invalid data stream"  # an OSError
if zstd is not None:
    _OPEN[".zst"] = zstd.open
    _DAMAGE += (zstd.ZstdError,)


# What Git LFS and git-annex leave in place of files that were not fetched -> the tool,
# and the command that fetches them.
_POINTERS = {
    rb"version https?://[\w./-]+/spec/v\d\r?\n(?:ext-[^\n]*\n)*oid \w+:[0-9a-f]+\r?\n"
    rb"size \d+\s*": ("Git LFS", "git lfs pull"),
    rb"(?:\.\./)*/?(?:\.git/)?annex/objects/[^\n]*\s*": ("git-annex", "git annex get"),
}
_MAX_POINTER_BYTES = 4096

LONGEST_LINE = 10_000_000  # bytes
HEAD = 1 << 16  # bytes by which the format of a file is recognised
_BUFFER = 1 << 20


@contextlib.contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Raises `UserError` if a file cannot be read or decompressed in the block."""
    damaged = f"is not a complete {_KINDS.get(_suffix(path), 'compressed')} file"
    try:
        yield
    except _DAMAGE:
        raise UserError(f"{path} {damaged}; copy it again") from None
    except OSError as error:
        if str(error) == _BZIP2_DAMAGE:
            raise UserError(f"{path} {damaged}; copy it again") from None
        reason = error.strerror or first_line(error)
        raise UserError(f"cannot read {path}: {reason}") from None


def _suffix(path: str | Path) -> str:
    return Path(path).suffix.lower()


def open_binary(path: str | Path) -> "io.BufferedReader[Any]":
    """Opens a file for reading bytes: plain, `.gz`, `.xz`, `.zst` or `.bz2`.

    Raises:
        UserError: the file is a pointer to its content, or the package that
            decompresses it is not installed.
    """
    file = open(path, "rb", buffering=_BUFFER)  # noqa: SIM115  (it is returned)
    return decompressed(cast("io.BufferedReader[Any]", file), path)


def decompressed(
    file: "io.BufferedReader[Any]", path: str | Path
) -> "io.BufferedReader[Any]":
    """Returns an open file, or what decompresses it.

    Args:
        file: the file; it is closed together with the result.
        path: its name. If that has the suffix of a compression, the file must be
            compressed.

    Raises:
        UserError: as `open_binary`.
    """
    try:
        head = file.peek(HEAD)
        require_fetched(str(path), head)
        content_suffix = compression(head)
        suffix = content_suffix or _suffix(path)
        if suffix in _MAGIC and head and not content_suffix:
            raise UserError(
                f"{path} does not begin as a {_KINDS[suffix]} file; copy it again, or "
                "rename it if it is not compressed"
            )
        if suffix == ".zst":
            require_extra("data", str(path), "backports.zstd")
        if suffix not in _OPEN:
            return file
        return _Decompressed(cast(io.RawIOBase, _OPEN[suffix](file, "rb")), file)
    except BaseException:
        file.close()
        raise


def uncompressed_suffix(path: str | Path) -> str:
    """Returns the suffix of a name before that of a compression, without its dot."""
    path = Path(path)
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.removeprefix(".")


def is_compressed(path: str | Path) -> bool:
    """Returns whether a file is compressed, by its content or its name.

    Raises:
        UserError: the file cannot be read.
    """
    with readable(path), open(path, "rb") as file:
        return (compression(file.read(HEAD)) or _suffix(path)) in _OPEN


def compression(head: bytes) -> str | None:
    """Returns the usual suffix of compressed content; None: it is not compressed."""
    for suffix, magics in _MAGIC.items():
        if head.startswith(magics):
            return suffix
    return None


class _Decompressed(io.BufferedReader):
    """Decompressed content, which closes the compressed file as well."""

    def __init__(self, content: io.RawIOBase, file: "io.BufferedReader[Any]") -> None:
        super().__init__(content, buffer_size=_BUFFER)
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()


def decoded_lines(file: BinaryIO, name: str, start: int = 1) -> Iterator[str]:
    r"""Yields the lines of an open UTF-8 text, without their ends.

    Only "\n" ends a line: if U+0085 or U+2028 within a sentence did, all later lines
    would be paired with the wrong translation. A "\r" before it, as Windows writes, and
    a byte order mark at the beginning of the file are not part of the text.

    Args:
        file: the file.
        name: the name of the file in messages.
        start: the number of the next line of the file.

    Raises:
        UserError: a line is not UTF-8, or is too long.
    """
    for line_number, line in enumerate(raw_lines(file, name, start), start=start):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {line_number}: byte {line[error.start]:#04x} is not "
                "valid UTF-8; convert the file (`iconv -f ENCODING -t UTF-8`)"
            ) from None
        if line_number == 1:
            text = text.removeprefix("\ufeff")
        yield text.removesuffix("\n").removesuffix("\r")


def raw_lines(file: BinaryIO, name: str, start: int = 1) -> Iterator[bytes]:
    """Yields the lines of an open file as bytes, with their ends.

    Args:
        file: the file.
        name: the name of the file in messages.
        start: the number of the next line of the file.

    Raises:
        UserError: a line is too long.
    """
    for line_number in itertools.count(start):
        line = file.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"{name}, line {line_number} has more than {LONGEST_LINE:,} bytes; "
                "write one sentence per line, ended by \\n"
            )
        yield line


def read_text(path: str | Path) -> str:
    """Returns the text of a small file, such as one of settings, read as lines are.

    Raises:
        UserError: the file cannot be read, is not UTF-8, or is too large.
    """
    with readable(path), open_binary(path) as file:
        content = file.read(LONGEST_LINE + 1)
    if len(content) > LONGEST_LINE:
        raise UserError(f"{path} has more than {LONGEST_LINE:,} bytes; is it the file?")
    return "".join(
        f"{line}\n" for line in decoded_lines(io.BytesIO(content), str(path))
    )


def require_fetched(name: str, head: bytes) -> None:
    """Refuses a pointer file.

    Args:
        name: the file, for the message.
        head: its first bytes, or all of them.

    Raises:
        UserError: it is a pointer of Git LFS or git-annex.
    """
    for pointer, (tool, command) in _POINTERS.items():
        if re.fullmatch(pointer, head):
            raise UserError(
                f"{name} is a pointer of {tool}, not the file itself; run `{command}` "
                "in its repository"
            )


def require_fetched_file(path: str | Path) -> None:
    """Refuses a pointer file; accepts a file that cannot be read.

    Raises:
        UserError: it is a pointer.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_MAX_POINTER_BYTES)
    except OSError:
        return
    require_fetched(str(path), head)


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
