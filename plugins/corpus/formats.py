"""File formats: Translation Memory eXchange (`.tmx`), and Parquet.

- `.tmx`: a unit without a text in both languages is skipped and counted in `dropped`.
  `en` also stands for `en-US`, which alone is `en_US`;
- `.parquet`: a column `translation` with a field for each language, as WMT's data are
  published on the Hugging Face Hub, or a column for each language.
"""

import re
from collections.abc import Iterator
from typing import Any, BinaryIO
from xml.etree import ElementTree

from t2t_keras.data.sources import (
    LONGEST_LINE,
    Format,
    PairFile,
    open_binary,
    readable,
)
from t2t_keras.option import UserError, first_line, require_extra
from t2t_keras.problem import Pair

_BATCH = 1024  # rows that are read from Parquet at a time
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements of TMX whose content is the markup of another format, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}


def _read_tmx(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a TMX file."""
    assert file.languages
    with readable(file.path), open_binary(file.path) as binary:
        open_elements: list[ElementTree.Element] = []
        try:
            bounded = _Bounded(file, binary)
            for event, element in ElementTree.iterparse(bounded, ("start", "end")):
                if event == "start":
                    open_elements.append(element)
                    continue
                open_elements.pop()
                element.tag = element.tag.rpartition("}")[2]  # no namespace
                if element.tag == "tu":
                    bounded.left = LONGEST_LINE
                    yield from _unit(file, element)
                    if open_elements:  # else all units stay in memory
                        open_elements[-1].clear()
        except (ElementTree.ParseError, LookupError, ValueError) as error:
            raise UserError(f"{file.path} is not valid XML: {error}") from None


class _Bounded:
    """A file whose units may be no longer than a line of a text."""

    def __init__(self, file: PairFile, binary: BinaryIO) -> None:
        self._file, self._binary, self.left = file, binary, LONGEST_LINE

    def read(self, size: int = -1, /) -> bytes:
        """Reads some bytes."""
        content = self._binary.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise UserError(
                f"{self._file.path} has a unit of more than {LONGEST_LINE:,} bytes; "
                "repair the file"
            )
        return content


def _unit(file: PairFile, unit: ElementTree.Element) -> Iterator[Pair]:
    """Yields the pair of a TMX unit, if it has one."""
    assert file.languages
    texts = {
        _language(variant): _text(segment)
        for variant in unit.iter("tuv")
        if (segment := variant.find("seg")) is not None
    }
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


def _read_parquet(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs of a Parquet file."""
    assert file.languages
    require_extra("data", str(file.path), "pyarrow")
    import pyarrow
    from pyarrow import parquet

    source, target = file.languages
    try:
        with readable(file.path), open_binary(file.path) as binary:
            content = parquet.ParquetFile(binary)
            fields = {f.name: _fields(f.type) for f in content.schema_arrow}
            nested = {source, target} <= set(fields.get("translation", ()))
            if not nested and not {source, target} <= fields.keys():
                found = {**fields, **dict.fromkeys(fields.get("translation", ()))}
                raise UserError(
                    f"{file.path} has no columns '{source}' and '{target}', only "
                    f"{', '.join(found)}"
                )
            columns = ["translation"] if nested else [source, target]
            for batch in content.iter_batches(_BATCH, columns=columns):
                for row in batch.to_pylist():
                    texts = row["translation"] or {} if nested else row
                    pair = texts.get(source) or "", texts.get(target) or ""
                    if not all(isinstance(text, str) for text in pair):
                        raise UserError(
                            f"{file.path}: the columns '{source}' and '{target}' "
                            "are not texts"
                        )
                    yield pair
    except pyarrow.ArrowException as error:
        raise UserError(
            f"{file.path} is not a Parquet file: {first_line(error)}"
        ) from None


def _fields(kind: Any) -> list[str]:
    """Returns the names of the fields of an Arrow type; none if it is not a struct."""
    return [kind.field(i).name for i in range(kind.num_fields)]


def _language(variant: ElementTree.Element) -> str:
    """Returns the language of a TMX variant in lower case; in TMX 1.1 it is `lang`."""
    return _normal(variant.get(_LANGUAGE) or variant.get("lang") or "")


def _normal(language: str) -> str:
    """Returns a language code such as en-us."""
    return language.lower().replace("_", "-")


def _text(segment: ElementTree.Element) -> str:
    """Returns the text of a TMX segment in one line, without the markup in it."""

    def parts(element: ElementTree.Element) -> Iterator[str]:
        if element.tag not in _CODES:
            yield element.text or ""
            for child in element:
                yield from parts(child)
                yield child.tail or ""

    return re.sub(r"\s*\n\s*", " ", "".join(parts(segment)))


TMX = Format(_read_tmx, needs_languages=True)
PARQUET = Format(_read_parquet, needs_languages=True)
