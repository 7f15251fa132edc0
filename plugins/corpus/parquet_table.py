"""Tables (Parquet) with a column, or a field of `translation`, for each language."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.data.sources import PairFile
from t2t_keras.errors import UserError, first_line, require_extra
from t2t_keras.files.text_files import LONGEST_LINE, open_binary, readable
from t2t_keras.problem import Pair

from .language_codes import two_codes
from .one_line import one_line

if TYPE_CHECKING:
    import pyarrow

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
            names = _column_names(file, head.schema_arrow)
            _require_text_columns(file, head.metadata)
            content = parquet.ParquetFile(binary, read_dictionary=names)
            for group in range(content.num_row_groups):
                batches = content.iter_batches(
                    _BATCH, row_groups=[group], columns=names
                )
                for batch in batches:
                    source, target = _columns(batch, names)
                    yield from zip(
                        _texts(file, source), _texts(file, target), strict=True
                    )
    except pyarrow.ArrowException as error:
        raise UserError(
            f"{file.path} is not a Parquet file: {first_line(error)}"
        ) from None
    except UnicodeDecodeError:
        raise UserError(
            f"{file.path} has a text that is not UTF-8; write the file again"
        ) from None


def _column_names(file: PairFile, schema: "pyarrow.Schema") -> list[str]:
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


def _texts(file: PairFile, column: "pyarrow.Array") -> list[str]:
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
