"""Translation memories (TMX)."""

import re
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data.sources import PairFile
from t2t_keras.problem import Pair

from .language_codes import normalize_code, read_head, two_codes
from .xml_texts import decode_head, segment_text, unit_pairs
from .xml_units import LANGUAGE, Unit, read_units


def read_tmx(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs; see `unit_pairs`."""
    yield from unit_pairs(file, map(_texts, read_units(file, ("tu",))))


def _texts(unit: Unit) -> dict[str, str]:
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
