"""Files of translations (XLIFF), version 1 or 2."""

from collections.abc import Iterator

from t2t_keras.data.sources import PairFile
from t2t_keras.problem import Pair

from .language_codes import normalize_code
from .xml_texts import segment_text, unit_pairs
from .xml_units import Unit, read_units


def read_xliff(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs; units without a target are dropped."""
    for unit in read_units(file, ("trans-unit", "segment")):
        source = unit.element.find("source")
        target = unit.element.find("target")
        if source is None or target is None:
            file.dropped["no_translation"] += 1
        elif file.languages:
            source_language, target_language = _languages(unit)
            texts = {source_language: segment_text(source)}
            texts[target_language] = segment_text(target)
            yield from unit_pairs(file, texts)
        else:
            yield segment_text(source), segment_text(target)


def _languages(unit: Unit) -> tuple[str, str]:
    """Returns the languages of a unit's file, else of the whole document."""
    file = unit.around.get("file", {})
    document = unit.around.get("xliff", {})
    source = file.get("source-language") or document.get("srcLang") or ""
    target = file.get("target-language") or document.get("trgLang") or ""
    return normalize_code(source), normalize_code(target)
