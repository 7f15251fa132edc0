"""What is normal for the pairs of a corpus, learned from a sample of them.

Nothing here depends on the languages: the sample shows how long a target is for its
source, and which sequences of three characters belong to which side.
"""

from collections.abc import Sequence

import numpy as np

from t2t_keras.problem import Pair

from .directions import in_one_direction
from .trigrams import trigram_odds

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
