"""The language codes that a file names."""

import re
from collections.abc import Iterable
from pathlib import Path

from t2t_keras.data.text_files import HEAD, open_binary, readable

_CODE = re.compile(r"[a-z]{2,3}(?:_\w+)?")  # as in `parse_languages`


def read_head(path: str | Path) -> bytes:
    """Returns the decompressed beginning of a file."""
    with readable(path), open_binary(path) as binary:
        return binary.peek(HEAD)[:HEAD]


def normalize_code(language: str) -> str:
    """Returns a language code in the form of en-us."""
    return language.lower().replace("_", "-")


def two_codes(names: Iterable[str]) -> tuple[str, str] | None:
    """Returns the names that are codes of languages, if there are two."""
    codes = [*dict.fromkeys(name for name in names if _CODE.fullmatch(name))]
    return (codes[0], codes[1]) if len(codes) == 2 else None
