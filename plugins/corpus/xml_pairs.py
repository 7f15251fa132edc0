"""Files of pairs in XML: translation memories (TMX) and XLIFF.

- `.tmx`: a unit without a text in both languages is skipped and counted in `dropped`.
  `en` also stands for `en-US`, which alone is `en_US`;
- `.xlf`, `.xliff`: source and target as the file has them, or swapped if it has the
  languages in the other order. Units without a target are skipped and counted.

The units are read as a stream and in bounded memory.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

from t2t_keras.data.sources import Format, PairFile
from t2t_keras.errors import UserError
from t2t_keras.files.text_files import LONGEST_LINE, open_binary, readable
from t2t_keras.problem import Pair

from .tables import one_line, read_head, two_codes


def normalize_code(language: str) -> str:
    """Returns a language code in the form of en-us."""
    return language.lower().replace("_", "-")


# Elements whose content is the markup of another format, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut", "x", "bx", "ex", "sc", "ec", "cp"}


def segment_text(segment: ElementTree.Element) -> str:
    """Returns the text of a segment in one line, without the markup in it."""
    return one_line("".join(_text_parts(segment)))


def _text_parts(element: ElementTree.Element) -> Iterator[str]:
    if element.tag not in _CODES:
        yield element.text or ""
        for child in element:
            yield from _text_parts(child)
            yield child.tail or ""


def unit_pairs(file: PairFile, units: Iterable[Mapping[str, str]]) -> Iterator[Pair]:
    """Yields the pairs of units; one that lacks a language is counted as dropped.

    Args:
        file: the file.
        units: the texts of each unit by their languages, see `normalize_code`.

    Raises:
        UserError: no unit has both languages.
    """
    assert file.languages
    names: dict[str, None] = {}  # of the languages, in order
    has_pairs = False
    for texts in units:
        names |= dict.fromkeys(texts)
        source = _text_in(file.languages[0], texts)
        target = _text_in(file.languages[1], texts)
        if source is None or target is None:
            file.dropped["no_translation"] += 1
        else:
            has_pairs = True
            yield source, target
    if names and not has_pairs:
        raise UserError(
            f"{file.path} has no unit with {' and '.join(file.languages)}, only "
            f"{' and '.join(name or 'texts without a language' for name in names):.80}"
        )


def _text_in(language: str, texts: Mapping[str, str]) -> str | None:
    """Returns the text in a language; `en` also stands for `en-US`."""
    code = normalize_code(language)
    for name, text in texts.items():
        if code in (name, name.partition("-")[0]):
            return text
    return None


def decode_head(head: bytes) -> str:
    """Returns the beginning of an XML file as text."""
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    return head.decode("utf-16" if is_utf16 else "utf-8-sig", "ignore")


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


def read_tmx(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs; see `unit_pairs`."""
    yield from unit_pairs(file, map(_tmx_texts, read_units(file, ("tu",))))


def _tmx_texts(unit: Unit) -> dict[str, str]:
    """Returns the texts of a unit by their languages."""
    texts = {}
    for variant in unit.element.iter("tuv"):
        segment = variant.find("seg")
        if segment is not None:
            # In TMX 1.1 the attribute is `lang`.
            language = variant.get(LANGUAGE) or variant.get("lang") or ""
            texts[normalize_code(language)] = segment_text(segment)
    return texts


def tmx_languages(path: str | Path) -> tuple[str, str] | None:
    """Returns the header's source language, and the only other one of the units."""
    text = decode_head(read_head(path))
    source = re.search(r"""\bsrclang\s*=\s*["']([\w-]+)["']""", text)
    if source is None:  # it may also be `*all*`
        return None
    codes = []
    variants = re.findall(r"""<tuv\b[^>]*?\blang\s*=\s*["']([\w-]+)["']""", text)
    for name in (source[1], *variants):
        codes.append(normalize_code(name).partition("-")[0])
    return two_codes(codes)


def read_xliff(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs, with `file.languages` as `unit_pairs` does.

    Units without a target are dropped.
    """
    units = read_units(file, ("trans-unit", "segment"))
    if file.languages:
        yield from unit_pairs(file, map(_xliff_texts, units))
        return
    for unit in units:
        texts = _sides(unit)
        if len(texts) == 2:
            yield texts["source"], texts["target"]
        else:
            file.dropped["no_translation"] += 1


def _xliff_texts(unit: Unit) -> dict[str, str]:
    """Returns the texts of a unit by their languages."""
    languages = dict(zip(("source", "target"), _languages(unit), strict=True))
    return {languages[side]: text for side, text in _sides(unit).items()}


def _sides(unit: Unit) -> dict[str, str]:
    """Returns the texts of a unit by their sides."""
    texts = {}
    for side in ("source", "target"):
        element = unit.element.find(side)
        if element is not None:
            texts[side] = segment_text(element)
    return texts


def _languages(unit: Unit) -> tuple[str, str]:
    """Returns the languages of a unit's file, else of the whole document."""
    file = unit.around.get("file", {})
    document = unit.around.get("xliff", {})
    source = file.get("source-language") or document.get("srcLang") or ""
    target = file.get("target-language") or document.get("trgLang") or ""
    return normalize_code(source), normalize_code(target)


TMX = Format(read_tmx, "a translation memory (TMX)", languages=tmx_languages)
XLIFF = Format(read_xliff, "a file of translations (XLIFF)", needs_languages=False)
