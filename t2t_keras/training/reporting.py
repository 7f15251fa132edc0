"""The reporter: measures a training, and calls its hooks with the metrics.

One of them prints a short line, above a progress bar if standard error is a terminal.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import rich.progress

from t2t_keras.console import (
    duration,
    folded,
    say,
    screen,
    short_number,
    speed,
    unwatched,
)
from t2t_keras.display import printing
from t2t_keras.errors import printable, quantity
from t2t_keras.metrics import evaluation_line
from t2t_keras.progress_bar import ProgressBar
from t2t_keras.training.hooks import Hook
from t2t_keras.training.interval import Durations, Interval, TimeLeft, measured
from t2t_keras.training.step import StepResult

# Without a progress bar, a line is printed at least this often.
_SECONDS_BETWEEN_LINES = 30.0
# The bar is updated at most this often.
_SECONDS_BETWEEN_UPDATES = 0.5


class Screen(Hook):
    """Shows the progress of a training."""

    def __init__(self, time_left: TimeLeft) -> None:
        self._time_left = time_left
        self._steps = time_left.steps
        self._start = time.monotonic()
        self._last_shown = self._start
        self._has_run = False  # whether a step has been shown
        self._bar: ProgressBar | None = None
        console = screen()
        if self._steps and console.is_interactive:
            self._bar = ProgressBar(
                console,
                rich.progress.TimeElapsedColumn(),
                refresh_per_second=2,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._row = self._bar.add_task(
                "training",
                total=self._steps.stop,
                completed=self._steps.start,
                text="",
            )
            self._bar.start()

    @contextlib.contextmanager
    def task(self, task: str, unit: str, total: int) -> Iterator[Callable[[int], None]]:
        """Shows the progress of one part of an evaluation; it is a `Meter`."""
        if bar := self._bar:
            with printing():
                row = bar.add_task(task, total=total, text=unit)
            try:
                yield lambda units: bar.advance(row, units)
            finally:
                bar.remove_task(row)
            return
        done = 0
        self._last_shown = time.monotonic()

        def advance(units: int) -> None:
            nonlocal done
            done += units
            if time.monotonic() - self._last_shown > _SECONDS_BETWEEN_LINES:
                self._last_shown = time.monotonic()
                self.say(f"{task}: {done} of {total} {unit}")

        yield advance

    def say(self, message: str) -> None:
        """Prints a line, above the bar if there is one."""
        with printing():
            if self._bar:
                self._bar.console.print(
                    printable(message), markup=False, highlight=False, soft_wrap=True
                )
            else:
                say(message)

    def on_step(self, step: int, interval: Interval) -> None:
        """Shows the first step, and a line or the bar when it is time for it."""
        time_now = time.monotonic()
        if not self._has_run:
            self._has_run = True
            count = step - self._steps.start
            steps = "first step" if count == 1 else f"first {count} steps"
            elapsed = duration(time_now - self._start)
            self._print_step(step, interval.metrics(), f"{steps} after {elapsed}")
        elif not self._bar and time_now - self._last_shown > _SECONDS_BETWEEN_LINES:
            self._print_progress(step, interval.metrics())
        if self._bar and time_now - self._last_shown > _SECONDS_BETWEEN_UPDATES:
            self._last_shown = time_now
            self._update_bar(self._bar, step, interval.metrics())

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Prints a line."""
        self._print_progress(step, metrics)
        if self._bar:
            self._update_bar(self._bar, step, metrics)

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Prints the metrics."""
        self.say(folded(evaluation_line(step, label, metrics).split(" | "), " | "))

    def close(self) -> None:
        """Removes the bar."""
        if self._bar:
            self._bar.stop()

    def _update_bar(
        self, bar: ProgressBar, step: int, metrics: dict[str, float]
    ) -> None:
        nll = short_number(metrics["nll"])
        tokens = speed(metrics["target_tokens_per_s"], "tokens")
        text = " | ".join([f"nll {nll}", *self._remaining(step), tokens])
        bar.update(self._row, completed=step, text=text)

    def _print_progress(self, step: int, metrics: dict[str, float]) -> None:
        tokens = speed(metrics["target_tokens_per_s"], "target tokens")
        self._print_step(step, metrics, tokens, *self._remaining(step))

    def _remaining(self, step: int) -> list[str]:
        """Returns the remaining time; nothing after the last step."""
        if step == self._steps.stop:
            return []
        return [str(self._time_left.estimate(step))]

    def _print_step(self, step: int, metrics: dict[str, float], *parts: str) -> None:
        """Prints the losses and other parts of a line.

        The smoothed loss is minimized; the nll is comparable with dev's.
        """
        self._last_shown = time.monotonic()
        losses = f"nll {short_number(metrics['nll'])}"
        if metrics["loss"] != metrics["nll"] and not math.isnan(metrics["loss"]):
            losses = f"smoothed loss {short_number(metrics['loss'])}, {losses}"
        if "skipped_updates" in metrics:
            skipped = quantity(int(metrics["skipped_updates"]), "updates")
            losses += f", {skipped} skipped"
        line = [f"step {step}/{self._steps.stop}", losses, *parts]
        if self._bar:
            # The bar has the last parts as well.
            while len(line) > 2 and len(" | ".join(line)) > self._bar.console.width:
                line.pop()
        self.say(" | ".join(line))


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
        """Reports an evaluation; see `Hook.on_eval`."""
        for hook in self._hooks:
            hook.on_eval(step, label, metrics)

    def close(self) -> None:
        """Closes the hooks, the screen first."""
        for hook in reversed(self._hooks):
            hook.close()
