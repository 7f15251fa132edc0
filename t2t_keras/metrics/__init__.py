"""How the outputs of a problem are scored: `Metrics`.

`bleu` has BLEU by sacreBLEU and by the paper's own pipeline, chrF and TER; `moses` has
the scripts of that pipeline.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any


class Metrics(abc.ABC):
    """The metrics of a problem, computed from sources, outputs and references.

    During training `score` is called on dev; `report` is what `t2t evaluate` prints.

    Attributes:
        selection_metric: the name among those of `score` by which checkpoints compare.
        higher_is_better: whether a better model has a higher value of it.
    """

    selection_metric: str
    higher_is_better: bool = True

    @abc.abstractmethod
    def score(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float]:
        """Scores outputs; the three lists are of equal length.

        Args:
            sources: the texts that were decoded.
            outputs: what the model wrote, one line each.
            references: what it should have written.

        Returns:
            Values by name, `selection_metric` among them.
        """

    def report(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> Mapping[str, Any]:
        """Scores outputs in every way there is; by default as `score` does."""
        return self.score(sources, outputs, references)

    def settings(self) -> dict[str, Any]:
        """Returns what the values of `score` depend on besides the texts."""
        return {}

    def selection_score(self, values: Mapping[str, float]) -> float:
        """Returns what is higher for a better model.

        Args:
            values: those of `score`, perhaps none, and "loss", which decides where
                nothing was decoded.
        """
        if self.selection_metric not in values:
            return -values["loss"]
        value = values[self.selection_metric]
        return value if self.higher_is_better else -value
