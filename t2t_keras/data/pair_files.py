"""Sources that are one file of pairs: tab-separated values, TMX, Parquet."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from t2t_keras.data.files import sha256
from t2t_keras.data.sources import COMPRESSED, open_binary, read_lines, readable
from t2t_keras.errors import UserError, first_line, require_extra
from t2t_keras.problem import Pair

_BATCH = 1024  # rows that are read from Parquet at a time
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements of TMX whose content is the markup of another format, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}


@dataclasses.dataclass(frozen=True)
class PairFile:
    """A file of pairs, plain or compressed (`.gz`, `.xz`, `.zst`), read as a stream.

    - `.tsv`: two columns, source and target, without quoting;
    - `.tmx`: Translation Memory eXchange. A unit without a text in both languages is
      left out and counted in `dropped`. `en` also stands for `en-US`, which alone is
      `en_US`;
    - `.parquet`: a column `translation` with a field for each language, as WMT's data
      are published on the Hugging Face Hub, or a column for each language.

    Attributes:
        path: the file.
        languages: those of source and target, for TMX and Parquet.
        dropped: the number of units left out in the last pass, by reason.
    """

    path: str | Path
    languages: tuple[str, str] | None = None
    dropped: Counter[str] = dataclasses.field(
        default_factory=Counter, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        kind = self._kind()
        if kind not in (".tsv", ".tmx", ".parquet"):
            raise UserError(
                f"{self.path} is not a file of pairs: .tsv, .tmx or .parquet"
            )
        if kind != ".tsv" and not self.languages:
            raise UserError(
                f"{self.path}: which languages? Give --languages, en-de for example"
            )

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs in the order of the file.

        Raises:
            UserError: the file cannot be read, or is not as described.
        """
        self.dropped.clear()
        readers = {".tsv": self._tsv, ".tmx": self._tmx, ".parquet": self._parquet}
        yield from readers[self._kind()]()

    def checksum(self) -> str:
        """Returns the SHA-256 of the file, and the languages."""
        return " ".join(["pairs", sha256(Path(self.path)), *(self.languages or ())])

    def _kind(self) -> str:
        """Returns the suffix, without that of the compression."""
        path = Path(self.path)
        if path.suffix.lower() in COMPRESSED:
            path = path.with_suffix("")
        return path.suffix.lower()

    def _tsv(self) -> Iterator[Pair]:
        for number, line in enumerate(read_lines(self.path), start=1):
            columns = line.split("\t")
            if len(columns) != 2:
                raise UserError(
                    f"{self.path}, line {number}: there must be two columns, source "
                    f"and target, but there are {len(columns)} (`cut -f` selects some)"
                )
            yield columns[0], columns[1]

    def _tmx(self) -> Iterator[Pair]:
        assert self.languages
        with readable(self.path), open_binary(self.path) as file:
            open_elements: list[ElementTree.Element] = []
            try:
                for event, element in ElementTree.iterparse(file, ("start", "end")):
                    if event == "start":
                        open_elements.append(element)
                        continue
                    open_elements.pop()
                    element.tag = element.tag.rpartition("}")[2]  # no namespace
                    if element.tag == "tu":
                        yield from self._unit(element)
                        if open_elements:  # else all units stay in memory
                            open_elements[-1].clear()
            except (ElementTree.ParseError, LookupError, ValueError) as error:
                raise UserError(f"{self.path} is not valid XML: {error}") from None

    def _unit(self, unit: ElementTree.Element) -> Iterator[Pair]:
        """Yields the pair of a TMX unit, if it has one."""
        assert self.languages
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
            for language in self.languages
        )
        if source is None or target is None:
            self.dropped["no_translation"] += 1
        else:
            yield source, target

    def _parquet(self) -> Iterator[Pair]:
        assert self.languages
        require_extra("data", str(self.path), "pyarrow")
        import pyarrow
        from pyarrow import parquet

        source, target = self.languages
        try:
            with readable(self.path), open_binary(self.path) as binary:
                file = parquet.ParquetFile(binary)
                fields = {f.name: _fields(f.type) for f in file.schema_arrow}
                nested = {source, target} <= set(fields.get("translation", ()))
                if not nested and not {source, target} <= fields.keys():
                    found = {**fields, **dict.fromkeys(fields.get("translation", ()))}
                    raise UserError(
                        f"{self.path} has no columns '{source}' and '{target}', only "
                        f"{', '.join(found)}"
                    )
                columns = ["translation"] if nested else [source, target]
                for batch in file.iter_batches(_BATCH, columns=columns):
                    for row in batch.to_pylist():
                        texts = row["translation"] or {} if nested else row
                        pair = texts.get(source) or "", texts.get(target) or ""
                        if not all(isinstance(text, str) for text in pair):
                            raise UserError(
                                f"{self.path}: the columns '{source}' and '{target}' "
                                "are not texts"
                            )
                        yield pair
        except pyarrow.ArrowException as error:
            raise UserError(
                f"{self.path} is not a Parquet file: {first_line(error)}"
            ) from None


def _fields(kind: Any) -> list[str]:
    """Returns the names of the fields of an Arrow type; none if it is no struct."""
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
