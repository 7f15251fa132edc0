"""The options that are phrases: parsing their texts, and checking their values."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from t2t_keras.blank_text import is_blank
from t2t_keras.data.lines import read_lines
from t2t_keras.data.text_files import read_text
from t2t_keras.errors import UserError, require_unicode, short_repr

# Source terms with their target terms.
Glossary: TypeAlias = tuple[tuple[str, str], ...]


def parse_glossary(text: str) -> Glossary:
    """Returns the glossary in a text: `[source=target,...]`, or the path of a file.

    Raises:
        UserError: the text or a line of the file is not a pair of terms, or the file
            cannot be read.
    """
    pairs = []
    if text.startswith("["):
        for index, item in enumerate(parse_list(text), start=1):
            pair = item.split("=")
            if len(pair) != 2:
                raise UserError(f"glossary: term {index} is not SOURCE=TARGET")
            pairs.append(pair)
    else:
        # `read_lines` would refuse a glossary, which is a table.
        lines = _lines_of_file(
            "glossary", text, lambda path: read_text(path).split("\n")
        )
        for line_number, line in lines.items():
            pair = line.split("\t")
            if len(pair) != 2:
                raise UserError(
                    f"{text}: line {line_number} is not `source TAB target`"
                )
            pairs.append(pair)
    return tuple((source.strip(), target.strip()) for source, target in pairs)


def parse_forbidden(text: str) -> tuple[str, ...]:
    """Returns the phrases in a text: `[phrase,...]`, or the path of a file."""
    if text.startswith("["):
        return parse_list(text)
    return tuple(_lines_of_file("forbidden", text, read_lines).values())


def parse_list(text: str) -> tuple[str, ...]:
    """Returns the items of a list `[a,b]`; a single item needs no `[]`.

    Raises:
        UserError: it has either `[` or `]` only.
    """
    if text.startswith("[") != text.endswith("]"):
        raise UserError(f"'{text}' is not a list; write [a,b]")
    return tuple(map(str.strip, text.removeprefix("[").removesuffix("]").split(",")))


def _lines_of_file(
    name: str, path: str, read: Callable[[str], Iterable[str]]
) -> dict[int, str]:
    """Returns the lines of a file that are not blank, by line number."""
    try:
        lines = list(read(path))
    except UserError as error:
        raise UserError(f"{name}: {error}; a list is [...]") from None
    return {i: line for i, line in enumerate(lines, 1) if not is_blank(line)}


def phrase_tuple(name: str, phrases: object) -> tuple[str, ...]:
    """Returns a list or tuple of phrases as a tuple.

    Raises:
        UserError: it is not a list of strings.
    """
    if not isinstance(phrases, (list, tuple)) or not all(
        isinstance(phrase, str) for phrase in phrases
    ):
        raise UserError(f"{name}: give a list of strings, not {short_repr(phrases)}")
    return tuple(phrases)


def glossary_tuple(pairs: object) -> Glossary:
    """Returns a dictionary of terms, or a list of pairs, as tuples.

    Raises:
        UserError: it is neither.
    """
    rows = list(pairs.items()) if isinstance(pairs, Mapping) else pairs
    if not isinstance(rows, (list, tuple)) or not all(map(_is_pair, rows)):
        raise UserError(
            "glossary: give pairs of a source and a target term, not "
            f"{short_repr(pairs)}"
        )
    return tuple((source, target) for source, target in rows)


def _is_pair(row: object) -> bool:
    if not isinstance(row, (list, tuple)) or len(row) != 2:
        return False
    return all(isinstance(term, str) for term in row)


def require_phrases(name: str, phrases: tuple[str, ...]) -> None:
    """Raises `UserError` if a phrase is blank or cannot be written as UTF-8."""
    for phrase in phrases:
        require_unicode(name, phrase)
    if any(map(is_blank, phrases)):
        raise UserError(f"{name}: a phrase is empty; leave it out")
