"""The evaluations of a training on dev, and which of them is the best."""

import math

from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.problem import Problem
from t2t_keras.training.options import TrainOptions


class Evaluations:
    """The metrics on dev by step.

    Args:
        problem: the problem, whose metrics `best_by=metric` compares.
        options: the options, of which `best_by` is used.

    Attributes:
        by_step: the metrics of each evaluated step.
    """

    def __init__(self, problem: Problem, options: TrainOptions) -> None:
        self.by_step: dict[int, dict[str, float]] = {}
        self._problem = problem
        self._options = options

    @property
    def best_step(self) -> int | None:
        """The step of the best evaluation, the earliest among equals."""
        candidates = self.by_step
        if self._options.best_by == "metric":
            # Evaluations without decoded sentences lack the metric.
            metric = metrics_of(self._problem).selection_metric
            with_metric = {}
            for step, metrics in self.by_step.items():
                if metric in metrics:
                    with_metric[step] = metrics
            candidates = with_metric or candidates
        return max(
            candidates,
            key=lambda step: (self.selection_score(candidates[step]), -step),
            default=None,
        )

    def selection_score(self, metrics: dict[str, float]) -> float:
        """Returns the score that `best_by` asks for: higher is better."""
        if math.isnan(metrics["loss"]):
            return -math.inf
        if self._options.best_by == "loss":
            return -metrics["loss"]
        return metrics_of(self._problem).selection_score(metrics)

    def count_since_best(self) -> int:
        """Returns the number of evaluations after the best one."""
        best_step = self.best_step
        if best_step is None:
            return 0
        return sum(step > best_step for step in self.by_step)
