"""Metrics: how the outputs of a problem are scored.

`bleu` has BLEU by sacreBLEU and by the paper's pipeline, chrF and TER; `moses` has the
scripts of that pipeline.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any


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
