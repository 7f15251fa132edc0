"""The texts of translation units in TMX and XLIFF files."""

from collections.abc import Iterable, Iterator, Mapping
from xml.etree import ElementTree

from t2t_keras.data.sources import PairFile
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair

from .language_codes import normalize_code
from .one_line import one_line

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
