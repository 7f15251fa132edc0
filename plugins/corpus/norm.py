"""What is normal for the pairs of a corpus, learned from a sample of them.

Nothing here depends on the languages: the sample shows how long a target is for its
source, and which sequences of three characters belong to which side.
"""

from collections.abc import Sequence

import numpy as np

from t2t_keras.problem import Pair

_BITS = 18  # bits of a trigram's hash
_MULTIPLIERS = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], np.uint32)
_TAIL = 4.0  # degrees of freedom of Student's distribution, for lengths


class Norm:
    """What is normal for the pairs of a corpus.

    Args:
        sample: pairs of the corpus.

    Attributes:
        odds: float32 [2 ** 18], by the hash of a trigram the logarithm of how much
            likelier it is in the source language.
        ratio: median of the logarithm of target characters per source character.
        spread: its standard deviation, estimated robustly.
    """

    def __init__(self, sample: Sequence[Pair]) -> None:
        sources, targets = zip(*sample, strict=True) if sample else ((), ())
        source_counts = _trigram_counts(sources)
        target_counts = _trigram_counts(targets)
        odds = np.log(source_counts / source_counts.sum())
        odds -= np.log(target_counts / target_counts.sum())
        self.odds = odds.astype(np.float32)
        lengths = [(len(source) + 1, len(target) + 1) for source, target in sample]
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
    return (mixed * _MULTIPLIERS[0]) >> np.uint32(32 - _BITS)


def _trigram_counts(texts: Sequence[str]) -> np.ndarray:
    """Returns how often each trigram occurs, plus 0.5."""
    _, characters, _ = join_texts(texts)
    return np.bincount(trigrams(characters), minlength=1 << _BITS) + 0.5
