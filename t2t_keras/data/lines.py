"""The lines of text files. A file of another format is refused, not read as text.

Formats of pairs recognise their files themselves (`pair_files.Format`). Others are
recognised here: by a beginning that no ordinary text has, or by several marks
(`marked_text`).
"""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_keras.data.marked_text import marked_format
from t2t_keras.data.pair_files import head_lines, matching_format, uncompressed_suffix
from t2t_keras.data.text_files import (
    HEAD,
    compression,
    decoded_lines,
    decompressed,
    open_binary,
    readable,
)
from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import io


class _NotText(NamedTuple):
    """A format that is not text.

    Attributes:
        begins: how its files begin, as a regular expression.
        title: the name of the format in messages.
        advice: what to do with the file {name}.
    """

    begins: bytes
    title: str
    advice: str


_EXTRACT = "write its sentences into a text file, one per line"
_COMMENTS = rb"(?is)\s*(?:<!--.*?-->\s*)*"  # before the first element of markup
_UNPACK = "unpack it (`{}`) and give the text files in it"
_CONVERT = "convert it (`iconv -f {} -t UTF-8 {{name}} > utf8.txt`)"

_NOT_TEXT = (
    _NotText(
        rb"PK(?:\x03\x04|\x05\x06|\x07\x08)",
        "a ZIP archive or an office document",
        _UNPACK.format("unzip {name}"),
    ),
    _NotText(rb"(?s:.{257})ustar", "a tar archive", _UNPACK.format("tar -xf {name}")),
    _NotText(rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK.format("7z x {name}")),
    _NotText(rb"Rar!\x1a\x07", "a RAR archive", _UNPACK.format("unrar x {name}")),
    _NotText(
        rb"\x1f[\x9d\xa0]|\x04\x22\x4d\x18|LZIP\x01|\x5d\x00\x00|\xff\x06\x00\x00sNaPpY",
        "a compressed file",
        "decompress it, or compress it with gzip, xz, zstd or bzip2",
    ),
    _NotText(rb"%PDF-\d", "a PDF document", _EXTRACT),
    _NotText(rb"\{\\rtf\d", "a document (RTF)", _EXTRACT),
    _NotText(rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an office document", _EXTRACT),
    _NotText(rb"SQLite format 3\x00", "a database (SQLite)", _EXTRACT),
    _NotText(rb"\x93NUMPY|\x89HDF\r\n|ARROW1|ORC", "a file of arrays", _EXTRACT),
    _NotText(
        rb"\x7fELF|\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a",
        "a program or an image",
        _EXTRACT,
    ),
    _NotText(
        rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff", "in UTF-32", _CONVERT.format("UTF-32")
    ),
    _NotText(rb"\xff\xfe|\xfe\xff", "in UTF-16", _CONVERT.format("UTF-16")),
    # Without a byte order mark, most bytes of an alphabet's first letters are 0.
    _NotText(rb"(?:[^\x00]\x00{3}){4}", "in UTF-32 (LE)", _CONVERT.format("UTF-32LE")),
    _NotText(rb"(?:\x00{3}[^\x00]){4}", "in UTF-32 (BE)", _CONVERT.format("UTF-32BE")),
    _NotText(rb"(?:[^\x00]\x00){8}", "in UTF-16 (LE)", _CONVERT.format("UTF-16LE")),
    _NotText(rb"(?:\x00[^\x00]){8}", "in UTF-16 (BE)", _CONVERT.format("UTF-16BE")),
    _NotText(
        rb"[^\n\r]+\r(?!\n)[^\n]*\Z",
        "a text with the line ends of old Macs",
        "convert them (`tr '\\r' '\\n' < {name} > lines.txt`)",
    ),
    _NotText(
        _COMMENTS + rb"<(?:!doctype\s+html|html|head|body)\b",
        "an HTML page",
        "download the file that it links to, or " + _EXTRACT,
    ),
    _NotText(
        _COMMENTS + rb"<(?:srcset|refset|tstset|mteval|dataset)\b[^>]*>",
        "a test set in SGML or XML",
        _EXTRACT + " (`sacrebleu --echo` does for published ones)",
    ),
    _NotText(rb"\s*<\?xml\s", "XML", _EXTRACT),
    _NotText(_COMMENTS + rb"<!DOCTYPE\s", "XML or SGML", _EXTRACT),
    _NotText(  # the corpora of IWSLT and of Europarl, as they are published
        rb"<url>[^\n]*</url>\s*\n<|<CHAPTER\s+ID=",
        "a text between lines of markup",
        "leave them out, on both sides (`grep -v '^<' {name} > text`)",
    ),
    _NotText(
        rb"WEBVTT\s|\s*\d+\r?\n\d+:\d\d:\d\d[,.]\d+ --> \d"
        rb"|\[Script Info\]\s|\{\d+\}\{\d+\}",
        "a file of subtitles",
        _EXTRACT,
    ),
    _NotText(
        rb'(?:\s*#[^\n]*\n)*\s*(?:msgctxt "[^\n]*"\r?\n)?'
        rb'msgid "[^\n]*"\r?\n(?:(?:msgid_plural )?"[^\n]*"\r?\n)*msgstr(?:\[0\])? "',
        "a catalogue of messages (gettext)",
        _EXTRACT,
    ),
    _NotText(
        rb"(?:#[^\n]*\n)*1(?:-\d+)?\t(?:[^\t\n]*\t){6,}",
        "annotated text (CoNLL)",
        _EXTRACT,
    ),
    _NotText(
        rb"%!PS-|\\documentclass\b|diff --git ",
        "PostScript, LaTeX or a patch",
        _EXTRACT,
    ),
)
# The first element of XML that begins without `<?xml`; its name.
_ELEMENT = re.compile(_COMMENTS + rb"<([a-z_][\w:.-]*)[^<>]*>")
_MIN_NULS = 10  # a text may have some
_JSON_BEGINS = re.compile(r'\s*[\[{]\s*(?:\{\s*)?"')


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
    """Raises UserError if a file is recognised as another format than lines of text.

    Args:
        file: the open and decompressed file, at its beginning, where it stays.
        name: the name of the file in messages.

    Raises:
        UserError: it is not a text; the message says what to do.
    """
    head = file.peek(HEAD)[:HEAD]
    suffix = uncompressed_suffix(name).lower()
    if format := matching_format(head, suffix):
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
    for other_format in _NOT_TEXT:
        if re.match(other_format.begins, head.removeprefix(codecs.BOM_UTF8)):
            advice = other_format.advice.format(name=name)
            raise UserError(
                f"{name} is {other_format.title}, not UTF-8 text with one sentence per "
                f"line; {advice}"
            )
    title = marked_format(head, suffix)
    for markup, matches in (("JSON", _is_json), ("XML", _is_element)):
        if matches(head, suffix):
            title = markup
    if title:
        raise UserError(
            f"{name} is {title}, not UTF-8 text with one sentence per line; {_EXTRACT}"
        )
    if head.count(0) >= max(_MIN_NULS, len(head) / 100):
        raise UserError(
            f"{name} is a binary file or in UTF-16, not UTF-8 text with one sentence "
            "per line: it has many NUL bytes"
        )


def _is_element(head: bytes, suffix: str) -> bool:
    """Returns whether a file is one element in XML, of several lines.

    In a text with markup the first element ends before the text does.
    """
    element = _ELEMENT.match(head.removeprefix(codecs.BOM_UTF8))
    if element is None:
        return False
    if len(head) >= HEAD:  # its end is not known
        return suffix == "xml"
    content = head.rstrip()
    end_tag = b"</%s>" % element[1]
    is_whole = content.find(end_tag) == len(content) - len(end_tag)
    return is_whole and b"\n" in content


def _is_json(head: bytes, suffix: str) -> bool:
    """Returns whether a file is one value in JSON.

    The first line of a text may be a JSON value: the file must have more than a line,
    unless its name says that it is JSON.
    """
    text = head.decode("utf-8-sig", "replace")
    if not _JSON_BEGINS.match(text):
        return False
    if len(head) >= HEAD:  # the value may be cut off
        line = text.lstrip().partition("\n")[0].strip()
        return suffix == "json" or line in ("[", "{") or "\n" not in text
    if suffix != "json" and len(head_lines(head)) < 2:
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    except RecursionError:
        pass
    return True
