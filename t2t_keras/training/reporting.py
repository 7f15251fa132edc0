"""The reporter: measures a training, and calls its hooks with the metrics."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from t2t_keras.data.progress import unwatched
from t2t_keras.training.hooks import Hook
from t2t_keras.training.interval import Durations, Interval, measured
from t2t_keras.training.screen import Screen
from t2t_keras.training.step import StepResult
from t2t_keras.training.time_left import TimeLeft


class Reporter:
    """Counts steps and time, and calls `on_step`, `on_report` and `on_eval`.

    Args:
        time_left: estimates the remaining time; it gets the measured durations.
        hooks: are called in this order, and closed with the reporter.
        screen: a hook that also prints messages; None: nothing is printed.
    """

    def __init__(
        self,
        time_left: TimeLeft,
        hooks: Sequence[Hook] = (),
        screen: Screen | None = None,
    ) -> None:
        self._time_left = time_left
        self._hooks = [*hooks, *([screen] if screen else [])]
        self._screen = screen
        self._interval = Interval()
        self._last_counted = time.monotonic()
        # The time since then that belongs to no step.
        self._elsewhere = Durations()

    def waiting(self) -> AbstractContextManager[None]:
        """Measures the time that training waits for data."""
        return measured(self._interval.waits)

    def paused(self) -> AbstractContextManager[None]:
        """Excludes the time of something other than training from the speed."""
        return measured(self._interval.pauses, self._elsewhere)

    def saving(self) -> AbstractContextManager[None]:
        """Measures the time that training waits for a checkpoint, as training's."""
        return measured(self._time_left.saves, self._elsewhere)

    def evaluating(self) -> AbstractContextManager[None]:
        """Measures the time of an evaluation, inside `paused`."""
        return measured(self._time_left.evaluations)

    def task(
        self, task: str, unit: str, total: int
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Shows the progress of one part of an evaluation; it is a `Meter`."""
        meter = self._screen.task if self._screen else unwatched
        return meter(task, unit, total)

    def say(self, message: str) -> None:
        """Prints a line on the screen, if there is one."""
        if self._screen:
            self._screen.say(message)

    def count(self, step: int, result: StepResult, steps: int = 1) -> None:
        """Counts a step, or some, after it has run.

        Args:
            step: the number of updates so far.
            result: what the step returned, or the sum of what they returned.
            steps: how many steps.
        """
        self._interval.add(result, steps)
        time_now = time.monotonic()
        seconds = time_now - self._last_counted - self._elsewhere.total
        if self._time_left.first_step is None:
            # The first call traces the graph, however many steps it has.
            self._time_left.add_step(seconds)
        else:
            for _ in range(steps):
                self._time_left.add_step(seconds / steps)
        self._last_counted = time_now
        self._elsewhere = Durations()
        for hook in self._hooks:
            hook.on_step(step, self._interval)

    @property
    def has_unreported(self) -> bool:
        """Whether steps have been counted since the last report."""
        return self._interval.steps > 0

    def report_training(self, step: int, extra: dict[str, float]) -> dict[str, float]:
        """Reports the steps since the last call.

        Args:
            step: the number of updates so far.
            extra: more metrics for the hooks, which are not returned.

        Returns:
            What `Interval.metrics` returns, and "minutes_left".
        """
        metrics = self._interval.metrics()
        metrics["minutes_left"] = self._time_left.estimate(step).seconds / 60
        for hook in self._hooks:
            hook.on_report(step, metrics | extra)
        self._interval = Interval()
        return metrics

    def report_evaluation(
        self, step: int, label: str, metrics: dict[str, float]
    ) -> None:
        """Reports an evaluation.

        Args:
            step: the number of updates so far.
            label: see `Hook.on_eval`.
            metrics: numbers by name; a name contains its unit if there is one.
        """
        for hook in self._hooks:
            hook.on_eval(step, label, metrics)

    def close(self) -> None:
        """Closes the hooks, the screen first."""
        for hook in reversed(self._hooks):
            hook.close()
