"""Files of JSON lines, each an object with a text for each language."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from t2t_keras.data.sources import PairFile
from t2t_keras.errors import UserError, require_unicode
from t2t_keras.files.text_files import decoded_lines, open_binary, readable
from t2t_keras.problem import Pair

from .language_codes import head_lines, two_codes
from .one_line import one_line


def read_jsonl(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a file with a JSON object in each line."""
    with readable(file.path), open_binary(file.path) as binary:
        lines = decoded_lines(binary, str(file.path))
        for line_number, line in enumerate(lines, start=1):
            if line.strip():
                yield _parse_pair(file, line, f"{file.path}, line {line_number}")


def _parse_pair(file: PairFile, line: str, location: str) -> Pair:
    """Returns the texts of an object in both languages; an absent text is "".

    Raises:
        UserError: the line is not such an object.
    """
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UserError(f"{location} is not valid JSON: {error}") from None
    except RecursionError:
        raise UserError(f"{location} is nested too deeply") from None
    if isinstance(record, dict):
        record = record.get("translation", record)
    if not isinstance(record, dict):
        raise UserError(f"{location} is not an object with a text per language")
    return _texts(file, record, location)


def _texts(file: PairFile, record: Mapping[str, object], location: str) -> Pair:
    assert file.languages
    for language in file.languages:
        if language not in record:
            raise UserError(
                f"{location} has no field '{language}', only "
                f"{', '.join(record) or 'none'}"
            )
    source_language, target_language = file.languages
    source = record[source_language] or ""
    target = record[target_language] or ""
    if not isinstance(source, str) or not isinstance(target, str):
        raise UserError(
            f"{location}: the fields '{source_language}' and '{target_language}' are "
            "not texts"
        )
    require_unicode(f"{location}, field '{source_language}'", source)
    require_unicode(f"{location}, field '{target_language}'", target)
    return one_line(source), one_line(target)


def jsonl_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the names of the two fields of the first object."""
    lines = head_lines(path)
    try:
        record = json.loads(lines[0]) if lines else None
    except (ValueError, RecursionError):
        return None
    if isinstance(record, dict):
        record = record.get("translation", record)
    return two_codes(record) if isinstance(record, dict) else None
