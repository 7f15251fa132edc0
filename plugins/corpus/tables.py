"""Files of pairs that are tables: Parquet, JSON lines, CSV.

- `.parquet`: a column `translation` with a field for each language, as WMT's data are
  published on the Hugging Face Hub, or a column for each language;
- `.jsonl`, `.ndjson`: in each line an object with such fields;
- `.csv`: a column for each language, which the first line names.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.data.sources import Format, PairFile
from t2t_keras.errors import UserError, first_line, require_extra, require_unicode
from t2t_keras.files.text_files import (
    HEAD,
    LONGEST_LINE,
    decoded_lines,
    open_binary,
    readable,
)
from t2t_keras.problem import Pair

if TYPE_CHECKING:
    import pyarrow


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


def two_codes(names: Iterable[str]) -> tuple[str, str] | None:
    """Returns the names that are codes of languages, if there are two."""
    codes = [*dict.fromkeys(name for name in names if _CODE.fullmatch(name))]
    return (codes[0], codes[1]) if len(codes) == 2 else None


def one_line(text: str) -> str:
    """Replaces each line break, with the white space around it, by a space."""
    return re.sub(r"\s*\n\s*", " ", text) if "\n" in text else text


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
        names = _csv_names(line, delimiter)
        if {*file.languages} <= {*names}:
            return delimiter, names
    source, target = file.languages
    raise UserError(
        f"{file.path}, line 1 must name the columns, '{source}' and '{target}' "
        f"among them, and has {line.strip()!r:.80}"
    )


def _csv_names(line: str, delimiter: str) -> list[str]:
    try:
        names = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
    return list(map(str.strip, names))


def csv_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the names of the two columns."""
    lines = head_lines(path)
    for delimiter in _DELIMITERS:
        languages = two_codes(_csv_names(lines[0], delimiter)) if lines else None
        if languages:
            return languages
    return None


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
    return _record_texts(file, record, location)


def _record_texts(file: PairFile, record: Mapping[str, object], location: str) -> Pair:
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


_BATCH = 1024  # rows that are read at a time
# A column that takes more memory than this, and more than this many times its
# compressed size, cannot be text.
_MAX_COLUMN_BYTES = 16 * LONGEST_LINE
_MAX_RATIO = 200


def read_parquet(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a Parquet file."""
    require_extra("data", str(file.path), "pyarrow")
    import pyarrow
    from pyarrow import parquet

    try:
        with readable(file.path), open_binary(file.path) as binary:
            # Texts that a column repeats stay in its dictionary: a file of some bytes
            # would fill the memory with copies of a long one.
            head = parquet.ParquetFile(binary)
            names = _parquet_names(file, head.schema_arrow)
            _require_text_columns(file, head.metadata)
            content = parquet.ParquetFile(binary, read_dictionary=names)
            for group in range(content.num_row_groups):
                batches = content.iter_batches(
                    _BATCH, row_groups=[group], columns=names
                )
                for batch in batches:
                    source, target = _columns(batch, names)
                    yield from zip(
                        _column_texts(file, source),
                        _column_texts(file, target),
                        strict=True,
                    )
    except pyarrow.ArrowException as error:
        raise UserError(
            f"{file.path} is not a Parquet file: {first_line(error)}"
        ) from None
    except UnicodeDecodeError:
        raise UserError(
            f"{file.path} has a text that is not UTF-8; write the file again"
        ) from None


def _parquet_names(file: PairFile, schema: "pyarrow.Schema") -> list[str]:
    """Returns the names of the columns of source and target, as Parquet has them."""
    assert file.languages
    languages = list(file.languages)
    fields = _fields_by_column(schema)
    nested = fields.get("translation", [])
    if {*languages} <= {*nested}:
        return [f"translation.{language}" for language in languages]
    if {*languages} <= fields.keys():
        return languages
    raise UserError(
        f"{file.path} has no columns '{languages[0]}' and '{languages[1]}', only "
        f"{', '.join(dict.fromkeys([*fields, *nested]))}"
    )


def _fields_by_column(schema: "pyarrow.Schema") -> dict[str, list[str]]:
    """Returns the names of the fields of each column; none if it is not a struct."""
    fields = {}
    for column in schema:
        count = column.type.num_fields
        fields[column.name] = [column.type.field(i).name for i in range(count)]
    return fields


def _require_text_columns(
    file: PairFile, metadata: "pyarrow.parquet.FileMetaData"
) -> None:
    """Refuses columns that would take far more memory than any text of their size."""
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            size = column.total_uncompressed_size
            compressed = column.total_compressed_size
            if size > max(_MAX_COLUMN_BYTES, _MAX_RATIO * compressed):
                raise UserError(
                    f"{file.path}: the column '{column.path_in_schema}' would take "
                    f"{size:,} bytes of memory for {compressed:,}; write the file "
                    "again with smaller row groups"
                )


def _columns(
    batch: "pyarrow.RecordBatch", names: Sequence[str]
) -> "list[pyarrow.Array]":
    """Returns the columns of source and target."""
    if names[0].startswith("translation.") and "translation" in batch.schema.names:
        from pyarrow import compute

        nested = batch.column("translation")  # a row may be without it
        columns = []
        for name in names:
            columns.append(compute.struct_field(nested, name.partition(".")[2]))
        return columns
    return list(map(batch.column, names))


def _column_texts(file: PairFile, column: "pyarrow.Array") -> list[str]:
    """Returns the texts of a column; an absent text is "".

    Raises:
        UserError: they are not texts, or one is longer than a line may be.
    """
    from pyarrow import compute, types

    dtype = column.type
    if types.is_dictionary(dtype):
        dtype = dtype.value_type
    if not (types.is_string(dtype) or types.is_large_string(dtype)):
        source, target = file.languages or ("", "")
        raise UserError(
            f"{file.path}: the columns '{source}' and '{target}' are not texts"
        )
    column = column.dictionary_encode()
    used = compute.unique(column.indices).drop_null()
    texts = column.dictionary.take(used)
    max_bytes = compute.max(compute.binary_length(texts)).as_py() or 0
    if max_bytes > LONGEST_LINE:
        raise UserError(
            f"{file.path} has a text of {max_bytes:,} bytes, more than "
            f"{LONGEST_LINE:,}; leave it out"
        )
    by_index = {None: ""}
    for index, text in zip(used.to_pylist(), texts.to_pylist(), strict=True):
        by_index[index] = one_line(text or "")
    return [by_index[index] for index in column.indices.to_pylist()]


def parquet_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the names of the two columns, or of the fields of `translation`."""
    require_extra("data", str(path), "pyarrow")
    import pyarrow
    from pyarrow import parquet

    try:
        with readable(path), open_binary(path) as binary:
            schema = parquet.ParquetFile(binary).schema_arrow
    except pyarrow.ArrowException:
        return None  # the error is raised when the pairs are read
    fields = _fields_by_column(schema)
    return two_codes(fields.get("translation", fields))


PARQUET = Format(
    read_parquet, "a table (Parquet)", magic=b"PAR1", languages=parquet_languages
)
JSONL = Format(read_jsonl, "a file of JSON lines", languages=jsonl_languages)
CSV = Format(read_csv, "a table (CSV)", languages=csv_languages)
