"""Hooks: what features do at points of a training, without the trainer naming them.

A plugin's hook has a flag of `t2t train` that turns it on.
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.processes import SIGNALS

if TYPE_CHECKING:
    from t2t_keras.evaluation.evaluator import Evaluator
    from t2t_keras.run.directory import RunDirectory
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

    def on_step(self, step: int, interval: "Interval") -> None:
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


@dataclasses.dataclass(frozen=True)
class HookPlugin:
    """An entry point of `t2t_keras.hooks`, whose name is that of the flag.

    Attributes:
        help: the help of the flag.
        make: makes the hook of a training, given the run directory and the evaluator
            of dev; None: the data have no dev split.
    """

    help: str
    make: "Callable[[RunDirectory, Evaluator | None], Hook]"


def hook_plugins(hooks: Sequence[str | HookPlugin]) -> list[HookPlugin]:
    """Returns hook plugins, each given by its name or as an object.

    Raises:
        UserError: there is no plugin of a name.
    """
    plugins: dict[str, HookPlugin] = load_plugins("hooks") if hooks else {}
    resolved = []
    for hook in dict.fromkeys(hooks):
        if isinstance(hook, HookPlugin):
            resolved.append(hook)
        elif hook in plugins:
            resolved.append(plugins[hook])
        else:
            raise UserError(f"there is no hook '{hook}'{did_you_mean(hook, plugins)}")
    return resolved
