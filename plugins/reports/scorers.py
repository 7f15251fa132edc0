"""External metrics for `t2t compare`: registered functions that score sentences.

A scorer is registered like a problem (`t2t_keras.registry`): by the entry points
`t2t_keras.scorers` of an installed package, by `--usr_dir`, or by an import.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError
from t2t_keras.metrics import CorpusMetric
from t2t_keras.registry import Registry

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scorer(CorpusMetric):
    """An external metric that scores each sentence; a corpus gets the mean.

    Attributes:
        name: the registered name.
        score_sentences: a function of sources, outputs and references that returns one
            number for each sentence.
        higher_is_better: whether a better sentence has a higher score.
        uses_sources: whether the function reads the sources.
        model: name and version of the scoring model, for the signature.
    """

    score_sentences: Callable[
        [Sequence[str], Sequence[str], Sequence[str]], Sequence[float]
    ]
    name: str = ""
    higher_is_better: bool = True
    uses_sources: bool = True
    model: str = ""

    def statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns [N, 2]: the score of each sentence, and 1 to count it.

        Raises:
            UserError: the function did not return one finite number for each sentence.
        """
        import numpy as np

        returned = self.score_sentences(sources, outputs, references)
        scores = np.asarray(returned, np.float64)
        if scores.shape != (len(outputs),) or not np.isfinite(scores).all():
            raise UserError(
                f"scorer '{self.name}': score_sentences must return one finite number "
                f"for each of the {len(outputs)} sentences, but returned "
                f"{returned!r:.80}"
            )
        return np.stack([scores, np.ones_like(scores)], axis=1)

    def score(self, statistics: "np.ndarray") -> float:
        """Returns the mean score of the sentences."""
        total, count = map(float, statistics)
        return total / count

    def settings(self) -> dict[str, str]:
        """Returns the scoring model."""
        return {"model": self.model} if self.model else {}


_scorers: Registry[Scorer] = Registry("scorers")


def register_scorer(definition: Callable[[], Scorer]) -> Callable[[], Scorer]:
    """Decorator that registers a function returning a `Scorer` under its own name.

    The function is only called when the scorer is used, so it may load a model.

    Raises:
        UserError: the name is taken.
    """
    _scorers.register(definition, Scorer)
    return definition


def scorer(name: str) -> Scorer:
    """Returns the scorer with this name.

    Raises:
        UserError: no scorer has it; the message suggests the nearest name.
    """
    return dataclasses.replace(_scorers.get(name), name=name)


def scorer_names() -> list[str]:
    """Returns the names of all scorers."""
    return list(_scorers.definitions())
