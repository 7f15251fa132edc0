"""Recognizes Markdown, SQL and other formats that are not one sentence per line.

It takes several marks to recognize a format: single ones occur in ordinary texts.
"""

import re
from collections.abc import Callable

from t2t_keras.data.text_files import HEAD

_TITLE = re.compile(r"(?:#{1,6} +\S[^\n]*|[^\n]+\n={3,})\n\s*\n")
_BLANK_SHARE = 0.1  # of the lines of a document are blank
_MIN_MARKS = 3
# What a document in Markdown has besides the title that it begins with.
_MARKDOWN = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^#{2,6} +\S|^[^\n]+\n-{3,}$",  # a lower heading
        r"^ *(?:```|~~~)",  # code
        r"`[^`\n]+`",
        r"^ {0,3}[-*+] +\S",  # an item
        r"\[[^\]\n]*\]\([^)\s]+[^)\n]*\)|^\[[^\]\n]+\]: +\S",  # a link
        r"^\|? *:?-{3,}:? *\|",  # a table
        r"\*\*[^*\n]+\*\*",
    )
)

_SQL_REMARKS = re.compile(r"(?:\s*(?:--[^\n]*(?:\n|\Z)|/\*.*?\*/;?))*\s*", re.DOTALL)
# How a dump of a database begins.
_SQL_STATEMENT = re.compile(
    r"(?:(?:CREATE|DROP|ALTER)\s+(?:OR\s+REPLACE\s+)?(?:TEMP\w*\s+|UNIQUE\s+)?"
    r"(?:DATABASE|EXTENSION|FUNCTION|INDEX|SCHEMA|SEQUENCE|TABLE|TYPE|VIEW)"
    r"|INSERT\s+INTO\s+[^\s(]+\s*(?:\(|VALUES\b|SELECT\b)"
    r"|SET\s+(?:NAMES|@?\w+\s*(?:=|TO\b))|PRAGMA\s+\w+\s*="
    r"|BEGIN(?:\s+TRANSACTION)?\s*;|START\s+TRANSACTION\s*;|USE\s+\S+\s*;)",
    re.IGNORECASE,
)
# What a file that is named `.sql` has, unless it has only queries.
_SQL_DEFINITION = re.compile(
    r"^[ \t]*(?:CREATE|ALTER|DROP|INSERT\s+INTO|GRANT)\b[^;]*;\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_SQL_TABLE = re.compile(
    r"^[ \t]*CREATE\s+(?:\w+\s+)?TABLE\s[^;(]*\(\s*\n", re.IGNORECASE | re.MULTILINE
)
_SQL_ROWS = re.compile(
    r"^[ \t]*INSERT\s+INTO\s+([^\s(]+)[^;]*?\bVALUES\b", re.IGNORECASE | re.MULTILINE
)
_MIN_ROWS = 3  # of one table

_PROPERTY = re.compile(r"([\w.$-]+)[ \t]*=.*|\[[\w. -]+\]")
_NAMED_PROPERTY = re.compile(r"([\w.$-]+)[ \t]*[=:].*|\[[\w. -]+\]")
_PROPERTY_SUFFIXES = ("properties", "ini", "cfg", "env")
_PROPERTY_REMARK = re.compile(r"\s*[#!;]")
_MIN_PROPERTIES = 5
_LONG_KEY = re.compile(r"[^\W\d_]{2,}[._-][^\W\d_]{2,}|[a-z]{2,}[A-Z][a-z]")
_LONG_KEYS = 0.5  # the share of the keys that have several words
_YAML_LINE = re.compile(r"""\s*(?:- .*|(?:- )?[\w."'-]+:(?:\s.*)?|#.*|---|)""")
_APPLE_STRING = re.compile(r'(?:"[^"]+"|\w+)\s*=\s*"(?:[^"\\]|\\.)*"\s*;')


def marked_format(head: bytes, suffix: str) -> str | None:
    """Returns the name of the format that a file has; None: it may be a text.

    Args:
        head: the beginning of the decompressed content, in UTF-8.
        suffix: the suffix of the name without a dot, in lower case.
    """
    text = head.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if len(head) >= HEAD:
        text = text[: text.rfind("\n") + 1]  # the last line may be cut off
    for name, matches in _FORMATS.items():
        if matches(text, suffix):
            return name
    return None


def _is_markdown(text: str, suffix: str) -> bool:
    """Returns whether a file is a document in Markdown.

    It has blank lines between its blocks. Its name or a title at its beginning is a
    mark like others.
    """
    blocks = text.lstrip()
    if blocks.startswith("---\n"):  # settings in YAML
        blocks = blocks.partition("\n---\n")[2].lstrip()
    lines = blocks.rstrip().split("\n")
    num_blank = sum(not line.strip() for line in lines)
    is_named = suffix in ("md", "markdown")
    has_title = _TITLE.match(blocks) is not None
    if not (is_named or has_title) or num_blank < _BLANK_SHARE * len(lines):
        return False
    marks = sum(pattern.search(blocks) is not None for pattern in _MARKDOWN)
    return marks + is_named + has_title >= _MIN_MARKS


def _is_sql(text: str, suffix: str) -> bool:
    """Returns whether a file makes the tables or rows of a database.

    A text may have a query, or even a statement, in each of its lines.
    """
    if suffix == "sql" and _SQL_DEFINITION.search(text):
        return True
    statements = text[_SQL_REMARKS.match(text).end() :]  # type: ignore[union-attr]
    if not _SQL_STATEMENT.match(statements):
        return False
    tables = [match[1] for match in _SQL_ROWS.finditer(statements)]
    has_rows = len(tables) >= _MIN_ROWS * len(set(tables)) > 0
    return has_rows or bool(_SQL_TABLE.search(statements))


def _is_properties(text: str, suffix: str) -> bool:
    """Returns whether a file has a key and a value in each line.

    The keys differ, and most of them have several words, as in `menu.file.open`; in a
    text with equations they are short.
    """
    keys = []
    is_named = suffix in _PROPERTY_SUFFIXES
    logical_lines = re.sub(r"\\\n[ \t]*", "", text).split("\n")
    for line in map(str.strip, logical_lines):
        if not line or _PROPERTY_REMARK.match(line):
            continue
        match = (_NAMED_PROPERTY if is_named else _PROPERTY).fullmatch(line)
        if match is None:
            return False
        if match[1]:
            keys.append(match[1])
    if is_named:
        return bool(keys)
    num_long = sum(_LONG_KEY.search(key) is not None for key in keys)
    has_long_keys = num_long >= _LONG_KEYS * len(keys)
    return len({*keys}) == len(keys) >= _MIN_PROPERTIES and has_long_keys


def _is_yaml(text: str, suffix: str) -> bool:
    """Returns whether a file that is named so has a key or an item in each line."""
    is_named = suffix in ("yaml", "yml")
    lines = text.rstrip().split("\n")
    return is_named and bool(text.strip()) and all(map(_YAML_LINE.fullmatch, lines))


def _is_apple_strings(text: str, suffix: str) -> bool:
    """Returns whether a file is a `.strings` file of a program for Apple systems."""
    if not text.lstrip().startswith(('"', "/*", "//")):
        return False
    statements = re.sub(r"/\*.*?\*/|^\s*//[^\n]*", "", text, flags=re.DOTALL | re.M)
    lines = [line.strip() for line in statements.split("\n") if line.strip()]
    return len(lines) >= _MIN_PROPERTIES and all(map(_APPLE_STRING.fullmatch, lines))


_FORMATS: dict[str, Callable[[str, str], bool]] = {
    "a document in Markdown": _is_markdown,
    "a script in SQL": _is_sql,
    "a file of properties": _is_properties,
    "a file in YAML": _is_yaml,
    "a file of strings (Apple)": _is_apple_strings,
}
