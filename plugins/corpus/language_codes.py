"""The language codes that a file names."""

import re
from collections.abc import Iterable
from pathlib import Path

from t2t_keras.files.text_files import HEAD, open_binary, readable

_CODE = re.compile(r"[a-z]{2,3}(?:_\w+)?")  # as in `parse_languages`


def read_head(path: str | Path) -> bytes:
    """Returns the decompressed beginning of a file."""
    with readable(path), open_binary(path) as binary:
        return binary.peek(HEAD)[:HEAD]


def head_lines(path: str | Path) -> list[str]:
    """Returns the first whole lines of a text, without blank ones."""
    head = read_head(path)
    lines = head.decode("utf-8-sig", "replace").split("\n")
    if len(head) >= HEAD:
        lines.pop()  # it may be cut off
    return [line.removesuffix("\r") for line in lines if line.strip()]


def normalize_code(language: str) -> str:
    """Returns a language code in the form of en-us."""
    return language.lower().replace("_", "-")


def two_codes(names: Iterable[str]) -> tuple[str, str] | None:
    """Returns the names that are codes of languages, if there are two."""
    codes = [*dict.fromkeys(name for name in names if _CODE.fullmatch(name))]
    return (codes[0], codes[1]) if len(codes) == 2 else None
