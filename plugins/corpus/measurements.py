"""Measures each pair by itself, and compares it with what is normal.

A sample of a corpus shows how long a target is for its source (`Norm`). py3langid tells
in which of the corpus's two languages a text is.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_keras.data.cleaning import ENTITY
from t2t_keras.files.json_files import hash_64
from t2t_keras.problem import Pair

# Evidence in nats. A text that is equally likely in both languages has 0.
_CLEAR_ODDS = 2.0  # of a swapped pair, on each side
_WRONG_LANGUAGE = 6.0  # of a text that is not in the language of its side
_CHARACTERS = 100  # of each text that py3langid reads
_PAIRS = 5_000  # of a sample whose directions are found
_CLEAR_SHARE = 0.7  # of these pairs have one side in each of the two languages
_GUESSED = 200  # pairs by which the two languages are guessed
_MIN_PAIRS = 20  # without which they are not guessed

_SPACES = (9, 10, 13, 32, 0xA0, 0x3000)

_DAMAGE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")
# UTF-8 that was read as Windows-1252 or Latin-1: the first byte of a character, and
# the bytes that continue it.
_CONTINUED = "[\x80-\xbf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc"
_CONTINUED += "\u2013\u2014\u2018-\u201a\u201c-\u201e\u2020-\u2022\u2026\u2030\u2039"
_CONTINUED += "\u203a\u20ac\u2122]"
_MISREAD = re.compile(
    f"[\xc2-\xdf]{_CONTINUED}|[\xe0-\xef]{_CONTINUED}{{2}}|[\xf0-\xf4]{_CONTINUED}{{3}}"
)


class LanguageOdds:
    """Compares the likelihoods of texts in two languages.

    Args:
        source: the code of the first language.
        target: the code of the second language.

    Raises:
        ImportError: py3langid, which is in the extra [data], is not installed.
        ValueError: py3langid does not know a language.
    """

    def __init__(self, source: str, target: str) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._source, self._target = source, target
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
        self._identifier.set_languages([source, target])

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the log-odds of the first language for each text, [N]."""
        odds = []
        for text in texts:
            scores = dict(self._identifier.rank(text[:_CHARACTERS]))
            odds.append(scores[self._source] - scores[self._target])
        return np.array(odds, np.float64)


class Norm:
    """What is normal for the pairs of a corpus.

    Args:
        sample: pairs of the corpus, some of which may be swapped.
        languages: of source and target; None: those that most pairs have.

    Attributes:
        odds: tells the two languages apart; None: py3langid is not installed, or
            cannot tell which side of a pair is in which language.
        ratio: median of the logarithm of target characters per source character.
    """

    def __init__(
        self, sample: Sequence[Pair], languages: tuple[str, str] | None = None
    ) -> None:
        probe = []
        for source, target in sample[:: 1 + len(sample) // _PAIRS]:
            if source and target and source != target:
                probe.append((source, target))
        self.odds = _language_odds(languages or _guessed_languages(probe))
        if self.odds is not None:
            directions = clear_directions(*map(self.odds, _sides(probe)))
            if np.count_nonzero(directions) < _CLEAR_SHARE * len(probe):
                self.odds = None
            elif -1 in directions:
                sample = _exchanged(probe, directions == -1)
        lengths = [(len(source) + 1, len(target) + 1) for source, target in sample]
        log_lengths = np.log(np.array(lengths, np.float64).reshape(-1, 2))
        ratios = log_lengths[:, 1] - log_lengths[:, 0]
        self.ratio = float(np.median(ratios)) if len(ratios) else 0.0


def clear_directions(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns 1 for each pair in the direction of the odds, -1 if it is swapped [N].

    Args:
        source: the odds of the sources [N].
        target: the odds of the targets [N]; 0 is returned where they are not clear.
    """
    is_forward = (source > _CLEAR_ODDS) & (target < -_CLEAR_ODDS)
    is_backward = (source < -_CLEAR_ODDS) & (target > _CLEAR_ODDS)
    return is_forward.astype(int) - is_backward


def _language_odds(languages: tuple[str, str] | None) -> LanguageOdds | None:
    """Returns the odds of two languages; None if py3langid cannot compare them."""
    source, target = (code.split("_")[0] for code in languages or ("", ""))
    if source == target:
        return None
    try:
        return LanguageOdds(source, target)
    except (ImportError, ValueError):
        return None


def _guessed_languages(pairs: Sequence[Pair]) -> tuple[str, str] | None:
    """Returns the languages of source and target that most pairs have, if any do."""
    if len(pairs) < _MIN_PAIRS:
        return None
    try:
        from py3langid import classify
    except ImportError:
        return None
    counts = Counter[tuple[str, str]]()
    for source, target in pairs[:: 1 + len(pairs) // _GUESSED]:
        codes = [classify(text[:_CHARACTERS])[0] for text in (source, target)]
        counts[codes[0], codes[1]] += 1
    return counts.most_common(1)[0][0]


def _sides(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Returns the sources and the targets."""
    return [source for source, _ in pairs], [target for _, target in pairs]


def _exchanged(pairs: Sequence[Pair], is_swapped: np.ndarray) -> list[Pair]:
    """Returns pairs, of which the swapped ones are exchanged."""
    exchanged = []
    for (source, target), swap in zip(pairs, is_swapped.tolist(), strict=True):
        exchanged.append((target, source) if swap else (source, target))
    return exchanged


class Measurements(NamedTuple):
    """The measurements of N pairs.

    Attributes:
        lengths: int32 [N, 2], characters of source and target.
        words: number of words of the sources, and of the targets.
        hashes: uint64 [N, 2], hashes of the source and of the pair.
        faults: the indices of the pairs that have a fault, by the fault's name.
    """

    lengths: np.ndarray
    words: tuple[int, int]
    hashes: np.ndarray
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
    sources, targets = _sides(pairs)
    source = _measure_side(sources, norm)
    target = _measure_side(targets, norm)
    is_empty = np.minimum(source.lengths, target.lengths) == 0
    hashes = []
    is_identical = np.zeros(len(pairs), bool)
    for index, (source_text, target_text) in enumerate(pairs):
        source_text = " ".join(source_text.split())
        target_text = " ".join(target_text.split())
        hashes.append((_hash(source_text), _hash(f"{source_text}\n{target_text}")))
        is_identical[index] = source_text == target_text
    is_identical &= ~is_empty
    source_odds = np.where(is_identical, 0.0, source.odds)
    target_odds = np.where(is_identical, 0.0, target.odds)
    is_swapped = clear_directions(source_odds, target_odds) == -1
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
        hashes=np.array(hashes, np.uint64).reshape(-1, 2),
        faults=faults,
    )


def _measure_side(texts: Sequence[str], norm: Norm) -> _Side:
    content = "".join(f"{text}\n" for text in texts)
    characters = np.frombuffer(content.encode("utf-32-le", "surrogatepass"), np.uint32)
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    is_space = np.isin(characters, _SPACES)
    damage = [*_match_starts(_DAMAGE, content), *_misread_starts(content)]
    entities = [*_match_starts(ENTITY, content)]
    return _Side(
        lengths=np.diff(starts) - 1,
        odds=norm.odds(texts) if norm.odds else np.zeros(len(texts)),
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
    log_ratio = np.log(target + 1.0) - np.log(source + 1.0)
    is_far = np.abs(log_ratio - norm.ratio) > math.log(2.5)
    return is_far & (np.abs(target - source * math.exp(norm.ratio)) > 20)


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
