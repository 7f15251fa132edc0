"""Hooks: what features do at points of a training, without the trainer naming them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from t2t_keras.signals import SIGNALS
from t2t_keras.training.interval import Interval

# What may end a training. If several processes have different reasons, the first one in
# this order counts.
STOP_REASONS = (
    *(signal.name for signal in SIGNALS),
    "train_steps",
    "max_minutes",
    "patience",
    "pruned",
    "callback",
)


class EvaluationReporter(Protocol):
    """The part of `Reporter` that hooks use when they evaluate."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Measures the time of an evaluation."""

    def task(
        self, task: str, unit: str, total: int
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Shows the progress of one part of an evaluation; it is a `Meter`."""

    def report_evaluation(
        self, step: int, label: str, metrics: dict[str, float]
    ) -> None:
        """Calls `on_eval` of all hooks."""

    def say(self, message: str) -> None:
        """Prints a line."""


class Hook:
    """A feature overrides the methods that it needs; the others do nothing.

    The hooks of a training are called in their order. Only those that change the
    initial weights are called in every process; all others in the chief alone.

    Attributes:
        evaluations_at_end: the number of evaluations that the hook makes after the last
            step, for the remaining time.
    """

    evaluations_at_end: int = 0

    def on_fresh_weights(self) -> str | None:
        """Called if there is no checkpoint yet; returns a sentence to print."""
        return None

    def on_restore(self, step: int) -> None:
        """Called when the checkpoint of a step has been restored; 0: there is none."""

    def on_train_begin(self) -> str | None:
        """Called before the first step, unless there is no step left.

        Returns:
            A sentence to print; None: there is none.
        """
        return None

    def on_step(self, step: int, interval: Interval) -> None:
        """Called after each call of the training step.

        Args:
            step: the number of updates so far.
            interval: the steps since the last report.
        """

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Called every `log_every` steps with the metrics of training.

        Args:
            step: the number of updates so far.
            metrics: what `Reporter.report_training` returns, and the learning rate.
        """

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Called after each evaluation.

        Args:
            step: the number of updates so far.
            label: "dev", or at the end "dev_best", "dev_average" or "dev_ema".
            metrics: the metrics by name.
        """

    def evaluate(self, step: int, reporter: EvaluationReporter) -> dict[str, object]:
        """Called every `eval_every` steps and after the last one.

        A signal may cut it short.

        Args:
            step: the number of updates so far.
            reporter: gets the metrics, and calls `on_eval`.

        Returns:
            Fields of the training's result.
        """
        return {}

    def evaluate_at_end(
        self, step: int, reporter: EvaluationReporter
    ) -> dict[str, object]:
        """Called after the last `evaluate` of a training; see there."""
        return {}

    def on_last_step(self, step: int, reporter: EvaluationReporter) -> None:
        """Called at the end if all of `train_steps` are done."""

    def stop_reason(self) -> str | None:
        """Returns one of STOP_REASONS to end the training here, or None."""
        return None

    def on_train_end(self) -> None:
        """Called at the end of a training that had a step left at its beginning."""

    def close(self) -> None:
        """Closes what is open, even after an error."""
