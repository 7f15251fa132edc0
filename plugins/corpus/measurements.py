"""Measures each pair by itself, and compares it with what is normal."""

import math
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_keras.data.cleaning import ENTITY
from t2t_keras.files.json_files import hash_64
from t2t_keras.problem import Pair

from .directions import clear_directions, in_one_direction
from .trigrams import join_texts, text_odds, trigram_odds

_TAIL = 4.0  # degrees of freedom of Student's distribution, for lengths


class Norm:
    """What is normal for the pairs of a corpus.

    Args:
        sample: pairs of the corpus.
        languages: of source and target; None: unknown.

    Attributes:
        is_directed: False if about half of the pairs are swapped, and nothing tells
            which half is right: then either language counts as the source's.
        odds: see `trigram_odds`.
        ratio: median of the logarithm of target characters per source character.
        spread: its standard deviation, estimated robustly.
    """

    def __init__(
        self, sample: Sequence[Pair], languages: tuple[str, str] | None = None
    ) -> None:
        pairs, self.is_directed = in_one_direction(sample, languages)
        sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
        self.odds = trigram_odds(sources, targets)
        lengths = [(len(source) + 1, len(target) + 1) for source, target in pairs]
        log_lengths = np.log(np.array(lengths, np.float64).reshape(-1, 2))
        ratios = log_lengths[:, 1] - log_lengths[:, 0]
        self.ratio = float(np.median(ratios)) if len(ratios) else 0.0
        deviation = np.abs(ratios - self.ratio)
        spread = 1.4826 * float(np.median(deviation)) if len(ratios) else 1.0
        self.spread = max(spread, 0.05)

    def deviation(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Returns the logarithm of the ratio of lengths [N] to the usual ratio."""
        return np.log(target + 1.0) - np.log(source + 1.0) - self.ratio

    def fit(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Returns the log-likelihood of lengths [N], up to a constant.

        Args:
            source: characters of the sources.
            target: characters of the targets.
        """
        z = self.deviation(source, target) / self.spread
        return -(_TAIL + 1) / 2 * np.log1p(z * z / _TAIL)


_SPACES = (9, 10, 13, 32, 0xA0, 0x3000)

# Evidence in nats. A text that is equally likely in both languages has 0.
_WRONG_LANGUAGE = 6.0

_DAMAGE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")
# UTF-8 that was read as Windows-1252 or Latin-1: the first byte of a character, and
# the bytes that continue it.
_CONTINUED = "[\x80-\xbf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc"
_CONTINUED += "\u2013\u2014\u2018-\u201a\u201c-\u201e\u2020-\u2022\u2026\u2030\u2039"
_CONTINUED += "\u203a\u20ac\u2122]"
_MISREAD = re.compile(
    f"[\xc2-\xdf]{_CONTINUED}|[\xe0-\xef]{_CONTINUED}{{2}}|[\xf0-\xf4]{_CONTINUED}{{3}}"
)
_ANCHORS = re.compile(r"\d+|[A-Z]\w{2,}")


class Measurements(NamedTuple):
    """The measurements of N pairs.

    Attributes:
        lengths: int32 [N, 2], characters of source and target.
        words: number of words of the sources, and of the targets.
        anchors: uint64 [N, 2], the numbers and names of each side, as sets of bits.
        hashes: uint64 [N, 2], hashes of the source and of the pair.
        forward: the indices of the pairs whose direction is clearly the norm's.
        faults: the indices of the pairs that have a fault, by the fault's name.
    """

    lengths: np.ndarray
    words: tuple[int, int]
    anchors: np.ndarray
    hashes: np.ndarray
    forward: np.ndarray
    faults: dict[str, np.ndarray]


class _Side(NamedTuple):
    """The measurements of the sources, or of the targets.

    Attributes:
        lengths: int64 [N], characters.
        odds: float [N], evidence that the text is in the source language.
        words: number of words.
        encoding: indices of texts with damaged characters.
        entities: indices of texts with HTML entities.
    """

    lengths: np.ndarray
    odds: np.ndarray
    words: int
    encoding: np.ndarray
    entities: np.ndarray


def measure(pairs: Sequence[Pair], norm: Norm) -> Measurements:
    """Measures each pair by itself."""
    sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
    source = _measure_side(sources, norm)
    target = _measure_side(targets, norm)
    is_empty = np.minimum(source.lengths, target.lengths) == 0
    hashes = []
    is_identical = np.zeros(len(pairs), bool)
    anchors = []
    for index, (source_text, target_text) in enumerate(pairs):
        anchors.append((_anchor_bits(source_text), _anchor_bits(target_text)))
        source_text = " ".join(source_text.split())
        target_text = " ".join(target_text.split())
        hashes.append((_hash(source_text), _hash(f"{source_text}\n{target_text}")))
        is_identical[index] = source_text == target_text
    is_identical &= ~is_empty
    source_odds = np.where(is_identical, 0.0, source.odds)
    target_odds = np.where(is_identical, 0.0, target.odds)
    directions = clear_directions(source_odds, target_odds)
    is_swapped = directions == -1
    lengths = np.stack([source.lengths, target.lengths])  # [2, N]
    is_far = _is_far(np.where(is_swapped, lengths[::-1], lengths), norm)
    faults = {
        "encoding": np.unique(np.append(source.encoding, target.encoding)),
        "entities": np.unique(np.append(source.entities, target.entities)),
        "empty": np.flatnonzero(is_empty),
        "identical": np.flatnonzero(is_identical),
        "swapped": np.flatnonzero(is_swapped),
        "source_language": np.flatnonzero(
            (source_odds > 0) & (target_odds > _WRONG_LANGUAGE)
        ),
        "target_language": np.flatnonzero(
            (source_odds < -_WRONG_LANGUAGE) & (target_odds < 0)
        ),
        "length": np.flatnonzero(~is_empty & is_far),
    }
    return Measurements(
        lengths=lengths.T.astype(np.int32),
        words=(source.words, target.words),
        anchors=np.array(anchors, np.uint64).reshape(-1, 2),
        hashes=np.array(hashes, np.uint64).reshape(-1, 2),
        forward=np.flatnonzero(directions == 1),
        faults=faults,
    )


def _measure_side(texts: Sequence[str], norm: Norm) -> _Side:
    content, characters, starts = join_texts(texts)
    is_space = np.isin(characters, _SPACES)
    damage = [*_match_starts(_DAMAGE, content), *_misread_starts(content)]
    entities = [*_match_starts(ENTITY, content)]
    return _Side(
        lengths=np.diff(starts) - 1,
        odds=text_odds(norm.odds, characters, starts),
        words=int(np.count_nonzero(is_space[1:] & ~is_space[:-1])),
        encoding=_texts_at(damage, starts),
        entities=_texts_at(entities, starts),
    )


def _texts_at(positions: Sequence[int], starts: np.ndarray) -> np.ndarray:
    """Returns the indices of the texts that have some positions in joined texts."""
    return (np.searchsorted(starts, positions, side="right") - 1).astype(np.int64)


def _is_far(lengths: np.ndarray, norm: Norm) -> np.ndarray:
    """Whether lengths [2, N] are far from what is normal, by ratio and difference."""
    source, target = lengths
    expected = source * math.exp(norm.ratio)
    is_far = np.abs(norm.deviation(source, target)) > math.log(2.5)
    return is_far & (np.abs(target - expected) > 20)


def _match_starts(pattern: re.Pattern[str], text: str) -> Iterator[int]:
    return (match.start() for match in pattern.finditer(text))


def _misread_starts(text: str) -> Iterator[int]:
    """Yields where UTF-8 was read as Windows-1252 or Latin-1."""
    for match in _MISREAD.finditer(text):
        for encoding in ("cp1252", "latin-1"):
            try:
                match[0].encode(encoding).decode("utf-8")
            except UnicodeError:
                continue
            yield match.start()
            break


def _hash(text: str) -> int:
    return hash_64(text.encode("utf-8", "surrogatepass"))


def _anchor_bits(text: str) -> int:
    """Returns the numbers and names of a text as a set of 64 bits."""
    bits = 0
    for word in _ANCHORS.findall(text):
        bits |= 1 << (zlib.crc32(word.encode()) & 63)
    return bits
