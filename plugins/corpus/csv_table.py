"""Tables (CSV) whose first line names the columns."""

import csv
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data.sources import PairFile
from t2t_keras.errors import UserError
from t2t_keras.files.text_files import decoded_lines, open_binary, readable
from t2t_keras.problem import Pair

from .language_codes import head_lines, two_codes
from .one_line import one_line

_DELIMITERS = ",;\t"


def read_csv(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a table whose first line names the columns."""
    assert file.languages
    with readable(file.path), open_binary(file.path) as binary:
        lines = (f"{line}\n" for line in decoded_lines(binary, str(file.path)))
        delimiter, names = _header(file, next(lines, ""))
        source = names.index(file.languages[0])
        target = names.index(file.languages[1])
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            for row in rows:
                if row and len(row) != len(names):
                    raise UserError(
                        f"{file.path}, line {rows.line_num + 1}: there are {len(row)} "
                        f"columns, not {len(names)}"
                    )
                if row:
                    yield one_line(row[source]), one_line(row[target])
        except csv.Error as error:
            raise UserError(
                f"{file.path}, line {rows.line_num + 1}: {error}; repair the quotes"
            ) from None


def _header(file: PairFile, line: str) -> tuple[str, list[str]]:
    """Returns the delimiter and the names of the columns, given the first line.

    Raises:
        UserError: the languages of the file are not among the names.
    """
    assert file.languages
    for delimiter in _DELIMITERS:
        names = _column_names(line, delimiter)
        if {*file.languages} <= {*names}:
            return delimiter, names
    source, target = file.languages
    raise UserError(
        f"{file.path}, line 1 must name the columns, '{source}' and '{target}' "
        f"among them, and has {line.strip()!r:.80}"
    )


def _column_names(line: str, delimiter: str) -> list[str]:
    try:
        names = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
    return list(map(str.strip, names))


def csv_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the names of the two columns."""
    lines = head_lines(path)
    for delimiter in _DELIMITERS:
        languages = two_codes(_column_names(lines[0], delimiter)) if lines else None
        if languages:
            return languages
    return None
