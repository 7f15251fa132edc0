"""Reports of a training: on the screen, in `metrics.jsonl` and for TensorBoard.

The screen gets a short line for each report, above a progress bar if it is a terminal.
The file and TensorBoard get every metric. `TimeLeft` estimates the remaining time.
"""

import contextlib
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import rich.progress
import tensorflow as tf
from rich.console import Console
from rich.table import Column

from t2t_keras.data.atomic_files import open_records
from t2t_keras.data.console import duration, screen
from t2t_keras.evaluation.metrics_line import evaluation_line, short_number
from t2t_keras.training.options import TrainOptions
from t2t_keras.training.step import StepResult

_SECONDS_BETWEEN_LINES = 30.0  # at most, without a progress bar
_SECONDS_BETWEEN_UPDATES = 0.5  # between updates of the bar


class Reporter:
    """Counts tokens and time; reports to standard error, a file and TensorBoard.

    Args:
        output_dir: directory for `metrics.jsonl` and the event files; None: nothing is
            written or printed.
        steps: the steps that this process will run.
        time_left: estimates the remaining time; None: estimates it from the steps
            alone.
        on_record: gets the step, the kind and the metrics of each record.
    """

    def __init__(
        self,
        output_dir: Path | None,
        steps: range,
        time_left: "TimeLeft | None" = None,
        on_record: Callable[[int, str, dict[str, float]], None] | None = None,
    ) -> None:
        self._on_record = on_record
        self._is_silent = output_dir is None
        self._steps = steps
        self._time_left = time_left or TimeLeft(steps, TrainOptions())
        self._bar: rich.progress.Progress | None = None
        if output_dir:
            self._file = open_records(output_dir / "metrics.jsonl")
            self._events = tf.summary.create_file_writer(str(output_dir))
            console = screen()
            if steps and console.is_interactive:
                self._bar = _bar(console)
                self._row = self._bar.add_task(
                    "training", total=steps.stop, completed=steps.start, text=""
                )
                self._bar.start()
        self._began = self._counted = self._shown = time.monotonic()
        self._elsewhere = _Durations()  # since the last step was counted
        self._is_first = True
        self._new_interval()

    def _new_interval(self) -> None:
        self._start = time.monotonic()
        self._waits, self._pauses = _Durations(), _Durations()
        self._results: list[StepResult] = []  # not added up yet
        self._sums = StepResult(*[0.0] * len(StepResult._fields))
        self._steps_counted = 0

    def waiting(self) -> AbstractContextManager[None]:
        """Measures the time that training waits for data."""
        return _measured(self._waits)

    def paused(self) -> AbstractContextManager[None]:
        """Excludes the time of something other than training from the speed."""
        return _measured(self._pauses, self._elsewhere)

    def saving(self) -> AbstractContextManager[None]:
        """Measures the time that training waits for a checkpoint, as training's."""
        return _measured(self._time_left.saves, self._elsewhere)

    def evaluating(self) -> AbstractContextManager[None]:
        """Measures the time of an evaluation, inside `paused`."""
        return _measured(self._time_left.evaluations)

    @contextlib.contextmanager
    def task(self, task: str, unit: str, total: int) -> Iterator[Callable[[int], None]]:
        """Shows the progress of one part of an evaluation; it is a `Meter`."""
        if bar := self._bar:
            row = bar.add_task(task, total=total, text=unit)
            try:
                yield lambda units: bar.advance(row, units)
            finally:
                bar.remove_task(row)
        else:
            done, self._shown = 0, time.monotonic()

            def advance(units: int) -> None:
                nonlocal done
                done += units
                if time.monotonic() - self._shown > _SECONDS_BETWEEN_LINES:
                    self._shown = time.monotonic()
                    self.say(f"{task}: {done} of {total} {unit}")

            yield advance

    def count(self, step: int, result: StepResult, steps: int = 1) -> None:
        """Counts a step, or some, after it has run.

        Args:
            step: the number of updates so far.
            result: what the step returned, or the sum of what they returned.
            steps: how many steps.
        """
        self._results.append(result)
        self._steps_counted += steps
        now = time.monotonic()
        seconds = now - self._counted - self._elsewhere.total
        # The first call traces, however many steps it has.
        for _ in range(1 if self._is_first else steps):
            self._time_left.add_step(seconds if self._is_first else seconds / steps)
        self._counted, self._elsewhere = now, _Durations()
        if self._is_first:
            self._is_first = False
            after = duration(now - self._began)
            what = "first step" if steps == 1 else f"first {steps} steps"
            self._say_step(step, f"{what} after {after}")
        elif not self._bar and now - self._shown > _SECONDS_BETWEEN_LINES:
            self._say_step(step, self._speed(), self._eta(step))
        if self._bar and now - self._shown > _SECONDS_BETWEEN_UPDATES:
            self._shown = now
            self._update_bar(self._bar, step)

    def _update_bar(self, bar: rich.progress.Progress, step: int) -> None:
        nll = short_number(self._mean(self._added().nll_sum))
        speed = self._speed().replace("target ", "")
        text = f"nll {nll} | {speed} | {self._eta(step)}"
        bar.update(self._row, completed=step, text=text)

    def _say_step(self, step: int, *parts: str) -> None:
        """Prints the losses and other parts of a line.

        The smoothed loss is minimized; the nll is comparable with dev's.
        """
        self._shown = time.monotonic()
        sums = self._added()
        losses = f"nll {short_number(self._mean(sums.nll_sum))}"
        if sums.loss_sum != sums.nll_sum:
            losses = (
                f"smoothed loss {short_number(self._mean(sums.loss_sum))}, {losses}"
            )
        if sums.skipped:
            losses += f", {sums.skipped:.0f} updates skipped"
        self.say(" | ".join([f"step {step}/{self._steps.stop}", losses, *parts]))

    def _added(self) -> StepResult:
        """Returns the sums over the current interval."""
        for result in self._results:
            pairs = zip(self._sums, map(float, result), strict=True)
            self._sums = StepResult(*(a + b for a, b in pairs))
        self._results = []
        return self._sums

    def _mean(self, total: float) -> float:
        """Returns a sum over the steps that were not skipped for each target token."""
        sums = self._added()
        share = 1 - sums.skipped / self._steps_counted
        return total / (share * sums.target_tokens) if share else math.nan

    def _speed(self) -> str:
        return f"{self._added().target_tokens / self._seconds():.0f} target tokens/s"

    def _seconds(self) -> float:
        """Returns the seconds of training in the current interval."""
        return time.monotonic() - self._start - self._pauses.total

    def _eta(self, step: int) -> str:
        return str(self._time_left.estimate(step))

    @property
    def pending(self) -> bool:
        """Whether steps have been counted since the last report."""
        return self._steps_counted > 0

    def report_training(self, step: int, extra: dict[str, float]) -> dict[str, float]:
        """Reports the interval since the last call, and begins a new one.

        Args:
            step: the number of updates so far.
            extra: more metrics, which are recorded as they are.

        Returns:
            Per target token, the label-smoothed loss, which is minimized, and the
            negative log-likelihood "nll" with its perplexity, which are comparable with
            dev's loss and perplexity; the gradient's norm, tokens per second, and the
            shares of padding and of waiting for data.
        """
        seconds = self._seconds()
        sums = self._added()
        nll = self._mean(sums.nll_sum)
        tokens = sums.source_tokens + sums.target_tokens
        metrics = {
            "loss": self._mean(sums.loss_sum),
            "nll": nll,
            "perplexity": math.exp(min(nll, 700.0)),
            "gradient_norm": sums.gradient_norm
            / max(self._steps_counted - sums.skipped, 1),
            "target_tokens_per_s": sums.target_tokens / seconds,
            "source_tokens_per_s": sums.source_tokens / seconds,
            "steps_per_s": self._steps_counted / seconds,
            "padding_share": 1 - tokens / sums.positions,
            "minutes_left": self._time_left.estimate(step).seconds / 60,
        }
        if self._waits.count:  # else the step itself has taken its batches
            metrics["waiting_for_data_share"] = self._waits.total / seconds
        if sums.skipped:
            metrics["skipped_updates"] = sums.skipped
        self._record(step, "train", metrics | extra)
        self._say_step(step, self._speed(), self._eta(step))
        if self._bar:
            self._update_bar(self._bar, step)
        self._new_interval()
        return metrics

    def report(self, step: int, kind: str, metrics: dict[str, float]) -> None:
        """Reports an evaluation.

        Args:
            step: the number of updates so far.
            kind: "dev", or a name that `Validation.compare` returns.
            metrics: numbers by name; a name contains its unit if there is one.
        """
        self._record(step, kind, metrics)
        self.say(evaluation_line(step, kind, metrics))

    def _record(self, step: int, kind: str, metrics: dict[str, float]) -> None:
        """Writes metrics to the file and for TensorBoard."""
        if self._is_silent:
            return
        record = {"step": step, "kind": kind, **metrics}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        with self._events.as_default(step=step):
            for name, value in metrics.items():
                # TensorBoard keeps float32, which a perplexity may overflow.
                number = tf.constant(value, tf.float64)
                tf.summary.scalar(f"{kind}/{name}", number)
        self._events.flush()
        if self._on_record:
            self._on_record(step, kind, metrics)

    def say(self, message: str) -> None:
        """Prints a line on standard error, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(
                message, markup=False, highlight=False, soft_wrap=True
            )
        elif not self._is_silent:
            print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Removes the bar and closes the files."""
        if self._bar:
            self._bar.stop()
        if not self._is_silent:
            self._file.close()
            self._events.close()


def _bar(console: Console) -> rich.progress.Progress:
    """Returns the progress bar; the rows of training and evaluation are transient."""
    # In a narrow terminal only the text is wrapped.
    whole, divided = Column(no_wrap=True), Column(no_wrap=False)
    return rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(bar_width=12, table_column=whole.copy()),
        rich.progress.MofNCompleteColumn(table_column=whole.copy()),
        rich.progress.TimeElapsedColumn(table_column=whole.copy()),
        rich.progress.TextColumn("{task.fields[text]}", table_column=divided),
        console=console,
        transient=True,
        refresh_per_second=2,
        redirect_stdout=sys.stdout.isatty(),
    )


@dataclasses.dataclass
class _Durations:
    """The sum and the mean of durations."""

    count: int = 0
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Adds a duration."""
        self.count += 1
        self.total += seconds

    @property
    def mean(self) -> float:
        """The mean; 0 if there are no durations."""
        return self.total / max(self.count, 1)


@contextlib.contextmanager
def _measured(*durations: _Durations) -> Iterator[None]:
    """Adds the duration of the `with` block."""
    start = time.monotonic()
    yield
    for each in durations:
        each.add(time.monotonic() - start)


class Estimate(NamedTuple):
    """The remaining time of a training.

    Attributes:
        seconds: seconds until the training ends; with `is_cut`, until `max_minutes`
            ends it.
        is_cut: whether `max_minutes` ends the training.
        lacks_evaluations: whether evaluations are still to come and none has been
            measured yet.
    """

    seconds: float
    is_cut: bool = False
    lacks_evaluations: bool = False

    def __str__(self) -> str:
        if self.is_cut:
            return f"ends by max_minutes in {duration(self.seconds)}"
        more = " + evaluations" if self.lacks_evaluations else ""
        return f"ETA {duration(self.seconds)}{more}"


@dataclasses.dataclass
class TimeLeft:
    """Estimates the remaining time from the durations measured so far.

    It multiplies the number of steps, checkpoints and evaluations still to come by
    their mean durations. The first step, which also traces the graph, is used only
    until there is a second one.

    Attributes:
        steps: the steps that this process will run.
        options: the options, of which `eval_every`, `save_every` and `save_minutes` are
            used.
        evaluations_at_end: number of evaluations after the last step, of the weights
            and their averages; 0: there are no evaluations at all.
        seconds_to_deadline: returns the seconds until `max_minutes` ends training.
        first_step: the duration of the first step; None: it has not run yet.
        later_steps: the durations of the other steps.
        saves: how long training has waited for checkpoints.
        evaluations: the durations of evaluations.
    """

    steps: range
    options: TrainOptions
    evaluations_at_end: int = 0
    seconds_to_deadline: Callable[[], float] = lambda: math.inf
    first_step: float | None = None
    later_steps: _Durations = dataclasses.field(default_factory=_Durations)
    saves: _Durations = dataclasses.field(default_factory=_Durations)
    evaluations: _Durations = dataclasses.field(default_factory=_Durations)

    def add_step(self, seconds: float) -> None:
        """Adds the duration of a step, without checkpoints and evaluations."""
        if self.first_step is None:
            self.first_step = seconds
        else:
            self.later_steps.add(seconds)

    def estimate(self, done: int) -> Estimate:
        """Estimates the remaining time after `done` steps, before saving/evaluating."""
        step = self.later_steps.mean or self.first_step or 0.0
        training = (self.steps.stop - done) * step
        if self.options.save_minutes:
            saves = training / (60 * self.options.save_minutes) + 1
        else:
            every = self.options.save_interval(self.steps.stop)
            saves = _multiples(every, done, self.steps.stop) + 1
        between = 0
        if self.evaluations_at_end:
            between = _multiples(self.options.eval_every, done, self.steps.stop)
        evaluation = self.evaluations.mean
        seconds = training + saves * self.saves.mean + between * evaluation
        deadline = max(self.seconds_to_deadline(), 0.0)
        if deadline < seconds:
            return Estimate(deadline, is_cut=True)
        lacks = bool(self.evaluations_at_end and not self.evaluations.count)
        return Estimate(
            seconds + self.evaluations_at_end * evaluation, lacks_evaluations=lacks
        )


def _multiples(of: int, first: int, stop: int) -> int:
    """Returns the number of multiples of `of` from `first` to `stop` - 1."""
    return max(0, (stop - 1) // of - (first - 1) // of)
