"""Files of translations (XLIFF), version 1 or 2."""

from collections.abc import Iterator

from t2t_keras.data.sources import PairFile
from t2t_keras.problem import Pair

from .language_codes import normalize_code
from .xml_texts import segment_text, unit_pairs
from .xml_units import Unit, read_units


def read_xliff(file: PairFile) -> Iterator[Pair]:
    """Yields the pairs, with `file.languages` as `unit_pairs` does.

    Units without a target are dropped.
    """
    units = read_units(file, ("trans-unit", "segment"))
    if file.languages:
        yield from unit_pairs(file, map(_texts, units))
        return
    for unit in units:
        texts = _sides(unit)
        if len(texts) == 2:
            yield texts["source"], texts["target"]
        else:
            file.dropped["no_translation"] += 1


def _texts(unit: Unit) -> dict[str, str]:
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
