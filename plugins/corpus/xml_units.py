"""Units of XML files of pairs, read as a stream and in bounded memory."""

from collections.abc import Collection, Iterator
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

from t2t_keras.data.sources import PairFile
from t2t_keras.errors import UserError
from t2t_keras.files.text_files import LONGEST_LINE, open_binary, readable

LANGUAGE = "http://www.w3.org/XML/1998/namespace}lang"
DEEPEST = 100  # elements within each other
_CHUNK = 1 << 16  # bytes that are parsed at a time


class Unit(NamedTuple):
    """A unit of a file, such as a translation unit.

    Attributes:
        element: the unit. No name has a namespace but attributes such as `LANGUAGE`.
        around: the attributes of the elements around it, by the name of the element.
    """

    element: ElementTree.Element
    around: dict[str, dict[str, str]]


def read_units(file: PairFile, tags: Collection[str]) -> Iterator[Unit]:
    """Yields the outermost elements that have one of the tags.

    Raises:
        UserError: the file is not XML, declares entities, which could expand to any
            size, is nested too deeply, or has a unit that is longer than a line of a
            text may be.
    """
    reader = _UnitReader(str(file.path), tags)
    with readable(file.path), open_binary(file.path) as binary:
        try:
            while chunk := binary.read(_CHUNK):
                yield from reader.read(chunk)
            yield from reader.read(b"", is_last=True)
        except (expat.ExpatError, LookupError, ValueError) as error:
            raise UserError(f"{file.path} is not valid XML: {error}") from None


class _UnitReader:
    """Parses XML in chunks, and builds the elements of units only."""

    def __init__(self, path: str, tags: Collection[str]) -> None:
        self._path = path
        self._tags = tags
        self._around: list[tuple[str, dict[str, str]]] = []
        self._builder: ElementTree.TreeBuilder | None = None  # of the open unit
        self._depth = 0  # of open elements in the unit
        self._finished: list[Unit] = []
        self._bytes = 0  # read since the last unit
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._skipped
        self._parser = parser

    def read(self, chunk: bytes, is_last: bool = False) -> Iterator[Unit]:
        """Yields the units that end in the next chunk of the file."""
        self._bytes += len(chunk)
        if self._bytes > LONGEST_LINE:
            raise UserError(
                f"{self._path} has a unit of more than {LONGEST_LINE:,} bytes; repair "
                "the file"
            )
        self._parser.Parse(chunk, is_last)
        if self._finished:
            self._bytes = len(chunk)
        yield from self._finished
        self._finished.clear()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._around) + self._depth >= DEEPEST:
            raise UserError(
                f"{self._path}, line {self._parser.CurrentLineNumber}: more than "
                f"{DEEPEST} elements are within each other; repair the file"
            )
        tag = name.rpartition("}")[2]
        if self._builder is None and tag in self._tags:
            self._builder = ElementTree.TreeBuilder()
        if self._builder is None:
            self._around.append((tag, attributes))
            return
        self._builder.start(tag, attributes)
        self._depth += 1

    def _end(self, name: str) -> None:
        if self._builder is None:
            self._around.pop()
            return
        self._builder.end(name.rpartition("}")[2])
        self._depth -= 1
        if not self._depth:
            self._finished.append(Unit(self._builder.close(), dict(self._around)))
            self._builder = None

    def _text(self, text: str) -> None:
        if self._builder is not None:
            self._builder.data(text)

    def _entity(self, name: str, *_: object) -> None:
        raise UserError(
            f"{self._path} declares the entity '{name}', which no file of pairs needs; "
            "replace it by its text"
        )

    def _skipped(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            raise UserError(
                f"{self._path}, line {self._parser.CurrentLineNumber}: the entity "
                f"'{name}' is unknown; replace it by its text"
            )
