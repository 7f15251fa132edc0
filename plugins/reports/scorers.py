"""External metrics, which score sentences: registered functions for `compare`.

They are registered as problems are (`t2t_keras.registry`): by the entry points
`t2t_keras.scorers` of an installed package, by `--usr_dir`, and by a plain import.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError
from t2t_keras.problem import CorpusMetric
from t2t_keras.registry import Registry

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scorer(CorpusMetric):
    """An external metric, which scores every sentence; its score is their mean.

    Attributes:
        name: the registered name.
        score_sentences: a function of sources, outputs and references that returns one
            number for each sentence.
        higher_is_better: whether a better sentence has a higher number.
        uses_sources: whether the function reads the sources.
        model: name and version of what computes the numbers, for the signature.
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
        """Returns the score of each sentence and a one, [N, 2].

        Raises:
            UserError: the function did not return one finite number for each sentence.
        """
        import numpy as np

        found = self.score_sentences(sources, outputs, references)
        scores = np.asarray(found, np.float64)
        if scores.shape != (len(outputs),) or not np.isfinite(scores).all():
            raise UserError(
                f"scorer '{self.name}': score_sentences must return one finite number "
                f"for each of the {len(outputs)} sentences, but returned {found!r:.80}"
            )
        return np.stack([scores, np.ones_like(scores)], axis=1)

    def score(self, statistics: "np.ndarray") -> float:
        """Returns the mean of the sentences' scores."""
        total, count = map(float, statistics)
        return total / count

    def settings(self) -> dict[str, str]:
        """Returns the model."""
        return {"model": self.model} if self.model else {}


_scorers: Registry[Scorer] = Registry("scorers")


def register_scorer(definition: Callable[[], Scorer]) -> Callable[[], Scorer]:
    """Registers a function that returns a `Scorer`, under its name; a decorator.

    The function is called when the scorer is used: it may load a model.

    Raises:
        UserError: the name is taken.
    """
    _scorers.register(definition, Scorer)
    return definition


def scorer(name: str) -> Scorer:
    """Returns the scorer of this name.

    Raises:
        UserError: there is none; the message suggests the nearest name.
    """
    return dataclasses.replace(_scorers.get(name), name=name)


def scorer_names() -> list[str]:
    """Returns the name of every scorer."""
    return list(_scorers.all())
