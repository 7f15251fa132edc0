"""Metrics: how the outputs of a problem are scored, and how systems are compared.

`bleu` has BLEU by sacreBLEU and by the paper's pipeline, chrF and TER; `moses` has the
scripts of that pipeline. `pharaoh` has the text form of word alignments, and their
error rate.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import numpy as np


class CorpusMetric(abc.ABC):
    """A metric that is computed from statistics of sentences, summed over a corpus.

    So it can be computed for any sample of the sentences, which the tests of
    `t2t compare` do thousands of times.

    Attributes:
        name: the name in tables and for `--metric`.
        higher_is_better: whether a better model has a higher score.
        uses_sources: whether the statistics depend on the sources.
    """

    name: str
    higher_is_better: bool = True
    uses_sources: bool = False

    @abc.abstractmethod
    def statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns the statistics of N sentences, numbers of any type [N, n]."""

    @abc.abstractmethod
    def score(self, statistics: "np.ndarray") -> float:
        """Returns the score of a corpus.

        Args:
            statistics: the sums [n] of the statistics of its sentences.
        """

    def sentence_score(self, statistics: "np.ndarray") -> float:
        """Returns the score of one sentence, whose statistics are given."""
        return self.score(statistics)

    def settings(self) -> dict[str, str]:
        """Returns the settings on which the score depends, for its signature."""
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scorer(CorpusMetric):
    """An external metric, which scores every sentence; its score is their mean.

    Attributes:
        name: the registered name, which the registry sets.
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
        """Returns the score of each sentence beside a one, [N, 2].

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


class Metrics(abc.ABC):
    """The metrics of a problem, computed from sources, outputs and references.

    Training calls `score` on dev; `t2t evaluate` prints `report`.

    Attributes:
        selection_metric: the metric from `score` by which checkpoints are compared.
        higher_is_better: whether a better model has a higher selection metric.
    """

    selection_metric: str
    higher_is_better: bool = True

    @abc.abstractmethod
    def score(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float]:
        """Scores outputs; the three lists have equal length.

        Args:
            sources: the source texts.
            outputs: the model's outputs, one line each.
            references: the correct outputs.

        Returns:
            Metrics by name, `selection_metric` among them.
        """

    def report(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> Mapping[str, Any]:
        """Scores outputs by all available metrics; by default, by those of `score`."""
        return self.score(sources, outputs, references)

    def corpus_metrics(self) -> Sequence[CorpusMetric]:
        """Returns the metrics by which `t2t compare` tests differences; maybe none."""
        return ()

    def settings(self) -> dict[str, Any]:
        """Returns the settings on which `score` depends."""
        return {}

    def selection_score(self, values: Mapping[str, float]) -> float:
        """Returns the selection score, which is higher for a better model.

        Args:
            values: the metrics from `score`, if sentences were decoded, and "loss",
                which is used otherwise.
        """
        if self.selection_metric not in values:
            return -values["loss"]
        value = values[self.selection_metric]
        return value if self.higher_is_better else -value
