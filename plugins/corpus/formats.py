"""File formats: translation memories, XLIFF, Parquet, JSON lines, CSV.

- `.tmx`: a unit without a text in both languages is skipped and counted in `dropped`.
  `en` also stands for `en-US`, which alone is `en_US`;
- `.xlf`, `.xliff`: source and target as the file has them, or swapped if it has the
  languages in the other order. Units without a target are skipped and counted;
- `.parquet`: a column `translation` with a field for each language, as WMT's data are
  published on the Hugging Face Hub, or a column for each language;
- `.jsonl`: in each line an object with such fields;
- `.csv`: a column for each language, which the first line names.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from t2t_keras.data.pair_files import Format, PairFile, head_lines
from t2t_keras.data.text_files import (
    HEAD,
    LONGEST_LINE,
    decoded_lines,
    open_binary,
    readable,
)
from t2t_keras.errors import UserError, first_line, require_extra
from t2t_keras.problem import Pair

from .xml_units import LANGUAGE, read_units

_BATCH = 1024  # rows that are read from Parquet at a time
# A column of Parquet that is larger in memory than this, and than this many times its
# compressed size, is no text.
_LARGEST_COLUMN = 16 * LONGEST_LINE
_LARGEST_RATIO = 200
# Elements whose content is the markup of another format, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut", "x", "bx", "ex", "sc", "ec", "cp"}
_DELIMITERS = ",;\t"
_CODE = re.compile(r"[a-z]{2,3}(?:_\w+)?")  # as in `parse_languages`


# XML.


def _read_tmx(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a TMX file."""
    for unit in read_units(file, ("tu",)):
        texts = {
            _language(variant): _text(segment)
            for variant in unit.element.iter("tuv")
            if (segment := variant.find("seg")) is not None
        }
        yield from _pair(file, texts)


def _pair(file: PairFile, texts: dict[str, str]) -> Iterator[Pair]:
    """Yields the pair of a unit, if it has one.

    Args:
        file: the file.
        texts: the texts of the unit by their languages, see `_normal`.
    """
    assert file.languages
    source, target = (
        next(
            (
                text
                for name, text in texts.items()
                if _normal(language) in (name, name.partition("-")[0])
            ),
            None,
        )
        for language in file.languages
    )
    if source is None or target is None:
        file.dropped["no_translation"] += 1
    else:
        yield source, target


def _read_xliff(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of an XLIFF file, of version 1 or 2."""
    for unit in read_units(file, ("trans-unit", "segment")):
        source, target = unit.element.find("source"), unit.element.find("target")
        if source is None or target is None:
            file.dropped["no_translation"] += 1
            continue
        pair = _text(source), _text(target)
        if not file.languages:
            yield pair
            continue
        of_file, of_all = unit.around.get("file", {}), unit.around.get("xliff", {})
        names = (
            _normal(of_file.get("source-language") or of_all.get("srcLang") or ""),
            _normal(of_file.get("target-language") or of_all.get("trgLang") or ""),
        )
        yield from _pair(file, dict(zip(names, pair, strict=True)))


def _language(variant: ElementTree.Element) -> str:
    """Returns the language of a TMX variant; in TMX 1.1 it is `lang`."""
    return _normal(variant.get(LANGUAGE) or variant.get("lang") or "")


def _normal(language: str) -> str:
    """Returns a language code such as en-us."""
    return language.lower().replace("_", "-")


def _text(segment: ElementTree.Element) -> str:
    """Returns the text of a segment in one line, without the markup in it."""

    def parts(element: ElementTree.Element) -> Iterator[str]:
        if element.tag not in _CODES:
            yield element.text or ""
            for child in element:
                yield from parts(child)
                yield child.tail or ""

    return re.sub(r"\s*\n\s*", " ", "".join(parts(segment)))


def _decoded(head: bytes) -> str:
    """Returns the beginning of an XML file as text."""
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    return head.decode("utf-16" if is_utf16 else "utf-8-sig", "ignore")


def _has_root(head: bytes, root: str) -> bool:
    """Returns whether the root of an XML file has a name, given its beginning."""
    text, place = _decoded(head), 0
    # Declaration, comments and document type stand before the root.
    skipped = re.compile(r"\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*>", re.DOTALL)
    while match := skipped.match(text, place):
        place = match.end()
    # Another element follows; in a sentence, words would.
    begins = re.compile(rf"<(?:\w+:)?{root}(?:\s[^<>]*)?>\s*<")
    return begins.match(text, place) is not None


# Tables and records.


def _read_jsonl(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a file with a JSON object in each line."""
    with readable(file.path), open_binary(file.path) as binary:
        lines = decoded_lines(binary, str(file.path))
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{file.path}, line {number}"
            try:
                record = json.loads(line)
            except ValueError as error:
                raise UserError(f"{place} is not valid JSON: {error}") from None
            except RecursionError:
                raise UserError(f"{place} is nested too deeply") from None
            if isinstance(record, dict):
                record = record.get("translation", record)
            if not isinstance(record, dict):
                raise UserError(f"{place} is not an object with a text per language")
            yield _record_pair(file, record, place)


def _record_pair(file: PairFile, record: dict[str, Any], place: str) -> Pair:
    """Returns the texts of a record in both languages; an absent text is "".

    Raises:
        UserError: the record has no such fields, or they are not texts.
    """
    assert file.languages
    for language in file.languages:
        if language not in record:
            raise UserError(
                f"{place} has no field '{language}', only {', '.join(record) or 'none'}"
            )
    source, target = (record[language] or "" for language in file.languages)
    if not isinstance(source, str) or not isinstance(target, str):
        names = " and ".join(f"'{language}'" for language in file.languages)
        raise UserError(f"{place}: the fields {names} are not texts")
    return _one_line(source), _one_line(target)


def _one_line(text: str) -> str:
    """Returns a text in one line, as all texts are in data directories."""
    return re.sub(r"\s*\n\s*", " ", text) if "\n" in text else text


def _matches_jsonl(head: bytes, suffix: str) -> bool:
    """Returns whether each line is a JSON object, which one line of a text may be."""
    lines = head_lines(head)
    if len(lines) < (1 if suffix in ("jsonl", "ndjson") else 2):
        return False
    return all(map(_is_object, lines))


def _is_object(line: str) -> bool:
    if not line.lstrip().startswith("{"):
        return False
    try:
        return bool(json.loads(line))
    except ValueError:
        return False
    except RecursionError:  # of nothing but brackets
        return True


def _read_csv(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a table whose first line names the columns."""
    assert file.languages
    with readable(file.path), open_binary(file.path) as binary:
        lines = (f"{line}\n" for line in decoded_lines(binary, str(file.path)))
        first = next(lines, "")
        names: list[str] = []
        delimiter = ","
        for delimiter in _DELIMITERS:
            names = _columns(first, delimiter)
            if {*file.languages} <= {*names}:
                break
        else:
            source, target = file.languages
            raise UserError(
                f"{file.path}, line 1 must name the columns, '{source}' and '{target}' "
                f"among them, and has {first.strip()!r:.80}"
            )
        places = [names.index(language) for language in file.languages]
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            for row in rows:
                if row and len(row) != len(names):
                    raise UserError(
                        f"{file.path}, line {rows.line_num + 1}: there are {len(row)} "
                        f"columns, not {len(names)}"
                    )
                if row:
                    yield _one_line(row[places[0]]), _one_line(row[places[1]])
        except csv.Error as error:
            raise UserError(
                f"{file.path}, line {rows.line_num + 1}: {error}; repair the quotes"
            ) from None


def _columns(line: str, delimiter: str) -> list[str]:
    """Returns the names of columns in the first line of a table."""
    try:
        names = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
    return [name.strip() for name in names]


def _matches_csv(head: bytes, suffix: str) -> bool:
    """Returns whether a file named so has a table: in texts the commas vary."""
    lines = head_lines(head)
    if suffix != "csv" or not lines:
        return False
    return any(_is_table(lines, delimiter) for delimiter in _DELIMITERS)


def _is_table(lines: Sequence[str], delimiter: str) -> bool:
    try:
        rows = [*csv.reader((f"{line}\n" for line in lines), delimiter=delimiter)]
    except csv.Error:
        return False
    widths = {len(row) for row in rows[:-1] or rows}  # the last may be cut off
    is_quoted = all(line.startswith('"') for line in lines)
    return len(widths) == 1 and (widths > {1} or widths != {1} or is_quoted)


# Parquet.


def _read_parquet(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a Parquet file."""
    assert file.languages
    require_extra("data", str(file.path), "pyarrow")
    import pyarrow
    from pyarrow import parquet

    try:
        with readable(file.path), open_binary(file.path) as binary:
            # Texts that a column repeats stay in its dictionary: a file of some bytes
            # would fill the memory with copies of a long one.
            head = parquet.ParquetFile(binary)
            names = _column_names(file, head.schema_arrow)
            _require_columns_of_texts(file, head.metadata)
            content = parquet.ParquetFile(binary, read_dictionary=names)
            for group in range(content.num_row_groups):
                batches = content.iter_batches(
                    _BATCH, row_groups=[group], columns=names
                )
                for batch in batches:
                    sides = [_values(file, side) for side in _sides(batch, names)]
                    yield from zip(*sides, strict=True)
    except pyarrow.ArrowException as error:
        raise UserError(
            f"{file.path} is not a Parquet file: {first_line(error)}"
        ) from None


def _column_names(file: PairFile, schema: Any) -> list[str]:
    """Returns the names of the columns of source and target, as Parquet has them.

    Args:
        file: the file.
        schema: its Arrow schema.
    """
    assert file.languages
    languages = list(file.languages)
    fields = {field.name: _fields(field.type) for field in schema}
    nested = fields.get("translation", [])
    if {*languages} <= {*nested}:
        return [f"translation.{language}" for language in languages]
    if {*languages} <= fields.keys():
        return languages
    found = {**fields, **dict.fromkeys(nested)}
    raise UserError(
        f"{file.path} has no columns '{languages[0]}' and '{languages[1]}', only "
        f"{', '.join(found)}"
    )


def _fields(kind: Any) -> list[str]:
    """Returns the names of the fields of an Arrow type; none if it is not a struct."""
    return [kind.field(i).name for i in range(kind.num_fields)]


def _require_columns_of_texts(file: PairFile, metadata: Any) -> None:
    """Refuses columns that would take far more memory than any text of their size."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            size = column.total_uncompressed_size
            if size > max(
                _LARGEST_COLUMN, _LARGEST_RATIO * column.total_compressed_size
            ):
                raise UserError(
                    f"{file.path}: the column '{column.path_in_schema}' would take "
                    f"{size:,} bytes of memory for {column.total_compressed_size:,}; "
                    "write the file again with smaller row groups"
                )


def _sides(batch: Any, names: list[str]) -> list[Any]:
    """Returns the columns of source and target."""
    if names[0].startswith("translation.") and "translation" in batch.schema.names:
        from pyarrow import compute

        nested = batch.column("translation")  # a row may be without it
        fields = [name.partition(".")[2] for name in names]
        return [compute.struct_field(nested, field) for field in fields]
    return [batch.column(name) for name in names]


def _values(file: PairFile, column: Any) -> list[str]:
    """Returns the texts of a column; an absent text is "".

    Raises:
        UserError: they are not texts, or one is longer than a line may be.
    """
    from pyarrow import compute, types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        source, target = file.languages or ("", "")
        raise UserError(
            f"{file.path}: the columns '{source}' and '{target}' are not texts"
        )
    column = column.dictionary_encode()
    used = compute.unique(column.indices).drop_null()
    texts = column.dictionary.take(used)
    longest = compute.max(compute.binary_length(texts)).as_py() or 0
    if longest > LONGEST_LINE:
        raise UserError(
            f"{file.path} has a text of {longest:,} bytes, more than "
            f"{LONGEST_LINE:,}; leave it out"
        )
    values = (_one_line(text or "") for text in texts.to_pylist())
    by_index = dict(zip(used.to_pylist(), values, strict=True))
    by_index[None] = ""
    return [by_index[i] for i in column.indices.to_pylist()]


def _matches_tmx(head: bytes, suffix: str) -> bool:
    return _has_root(head, "tmx")


def _matches_xliff(head: bytes, suffix: str) -> bool:
    return _has_root(head, "xliff")


def _matches_parquet(head: bytes, suffix: str) -> bool:
    return head.startswith(b"PAR1")


# The languages that a file tells.


def _head(path: str | Path) -> bytes:
    with readable(path), open_binary(path) as binary:
        return binary.peek(HEAD)[:HEAD]


def _two_codes(names: Iterable[str]) -> tuple[str, str] | None:
    """Returns the names that are codes of languages, if there are two."""
    codes = [*dict.fromkeys(name for name in names if _CODE.fullmatch(name))]
    return (codes[0], codes[1]) if len(codes) == 2 else None


def _tmx_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the header's source language, and the only other one of the units."""
    text = _decoded(_head(path))
    source = re.search(r"""\bsrclang\s*=\s*["']([\w-]+)["']""", text)
    found = re.findall(r"""<tuv\b[^>]*?\blang\s*=\s*["']([\w-]+)["']""", text)
    if source is None:  # it may also be `*all*`
        return None
    return _two_codes(_normal(name).partition("-")[0] for name in (source[1], *found))


def _jsonl_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the names of the two fields of the first object."""
    lines = head_lines(_head(path))
    try:
        record = json.loads(lines[0]) if lines else None
    except (ValueError, RecursionError):
        return None
    if isinstance(record, dict):
        record = record.get("translation", record)
    return _two_codes(record) if isinstance(record, dict) else None


def _csv_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the names of the two columns."""
    first = next(iter(head_lines(_head(path))), "")
    found = (_two_codes(_columns(first, delimiter)) for delimiter in _DELIMITERS)
    return next(filter(None, found), None)


def _parquet_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the names of the two columns, or of the fields of `translation`."""
    require_extra("data", str(path), "pyarrow")
    import pyarrow
    from pyarrow import parquet

    try:
        with readable(path), open_binary(path) as binary:
            schema = parquet.ParquetFile(binary).schema_arrow
    except pyarrow.ArrowException:
        return None  # the error is raised when the pairs are read
    fields = {field.name: _fields(field.type) for field in schema}
    return _two_codes(fields.get("translation", fields))


TMX = Format(
    _read_tmx, True, "a translation memory (TMX)", _matches_tmx, _tmx_languages
)
XLIFF = Format(_read_xliff, False, "a file of translations (XLIFF)", _matches_xliff)
PARQUET = Format(
    _read_parquet, True, "a table (Parquet)", _matches_parquet, _parquet_languages
)
JSONL = Format(
    _read_jsonl, True, "a file of JSON lines", _matches_jsonl, _jsonl_languages
)
CSV = Format(_read_csv, True, "a table (CSV)", _matches_csv, _csv_languages)
