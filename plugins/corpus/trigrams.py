"""Sequences of three characters, which tell languages apart."""

from collections.abc import Sequence

import numpy as np

BITS = 18  # bits of a trigram's hash
_MULTIPLIERS = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], np.uint32)


def join_texts(texts: Sequence[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """Joins texts, each with a newline after it.

    Returns:
        The joined text, its characters, uint32 [C], and where each text starts, int64
        [N + 1], of which the last is C.
    """
    content = "".join(f"{text}\n" for text in texts)
    characters = np.frombuffer(content.encode("utf-32-le", "surrogatepass"), np.uint32)
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    return content, characters, starts


def trigrams(characters: np.ndarray) -> np.ndarray:
    """Returns the hashes of the three characters that begin at each position.

    A trigram that reaches beyond a text has another hash than any within one, since
    texts end in newlines. ASCII letters count as lower case.
    """
    is_upper = (characters >= 65) & (characters <= 90)
    folded = np.where(is_upper, characters + np.uint32(32), characters)
    padded = np.append(folded.astype(np.uint32), np.zeros(2, np.uint32))
    mixed = (
        padded[:-2] * _MULTIPLIERS[0]
        ^ padded[1:-1] * _MULTIPLIERS[1]
        ^ padded[2:] * _MULTIPLIERS[2]
    )
    return (mixed * _MULTIPLIERS[0]) >> np.uint32(32 - BITS)


def trigram_odds(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """Returns how much likelier each trigram is in the sources than in the targets.

    Returns:
        The logarithms by the hashes of the trigrams, float32 [2 ** BITS].
    """
    source_counts = _counts(sources)
    target_counts = _counts(targets)
    odds = np.log(source_counts / source_counts.sum())
    odds -= np.log(target_counts / target_counts.sum())
    return odds.astype(np.float32)


def _counts(texts: Sequence[str]) -> np.ndarray:
    """Returns how often each trigram occurs, plus 0.5."""
    _, characters, _ = join_texts(texts)
    return np.bincount(trigrams(characters), minlength=1 << BITS) + 0.5


def text_odds(
    odds: np.ndarray, characters: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """Returns the sum of the odds of the trigrams of each text [N].

    Args:
        odds: see `trigram_odds`.
        characters: those of the joined texts, see `join_texts`.
        starts: where each text starts in them.
    """
    sums = np.cumsum(np.append(0.0, odds[trigrams(characters)]))
    return sums[starts[1:] - 1] - sums[starts[:-1]]
