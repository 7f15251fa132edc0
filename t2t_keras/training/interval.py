"""The steps since the last report: their summed results, and the time they took.

`TimeLeft` is the remaining time, with the checkpoints and evaluations to come.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from t2t_keras.console import duration
from t2t_keras.training.settings import TrainOptions
from t2t_keras.training.step import StepResult

_MAX_PENDING = 1000  # results on the device, each of which is seven scalars


@dataclasses.dataclass
class Durations:
    """The sum and the mean of durations in seconds."""

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
def measured(*durations: Durations) -> Iterator[None]:
    """Adds the duration of the `with` block to each of the durations."""
    start = time.monotonic()
    yield
    for total in durations:
        total.add(time.monotonic() - start)


class Interval:
    """The steps since the last report.

    The results of steps stay on the device until a figure is asked for, so that the
    host does not wait for every step.

    Attributes:
        steps: how many steps have been counted.
        waits: how long training has waited for data.
        pauses: the durations of anything other than training, such as evaluations.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.waits = Durations()
        self.pauses = Durations()
        self._start = time.monotonic()
        # Results that are not added to the sums yet.
        self._pending: list[StepResult] = []
        self._sums = StepResult(*[0.0] * len(StepResult._fields))

    def add(self, result: StepResult, steps: int) -> None:
        """Counts steps, whose sum is the result."""
        self._pending.append(result)
        self.steps += steps
        if len(self._pending) >= _MAX_PENDING:
            self._add_pending()

    @property
    def sums(self) -> StepResult:
        """The sums over all steps, as Python floats."""
        self._add_pending()
        return self._sums

    def _add_pending(self) -> None:
        """Adds the results that are still on the device to the sums."""
        for result in self._pending:
            pairs = zip(self._sums, map(float, result), strict=True)
            self._sums = StepResult(*(total + value for total, value in pairs))
        self._pending = []

    @property
    def seconds(self) -> float:
        """The seconds of training."""
        return time.monotonic() - self._start - self.pauses.total

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of these steps.

        Returns:
            Per target token, the label-smoothed loss, which is minimized, and the
            negative log-likelihood "nll" with its perplexity, which are comparable with
            dev's; the gradient's norm, tokens per second, and the
            shares of padding and of waiting for data.
        """
        seconds = self.seconds
        sums = self.sums
        nll = self._mean(sums.nll_sum)
        tokens = sums.source_tokens + sums.target_tokens
        metrics = {
            "loss": self._mean(sums.loss_sum),
            "nll": nll,
            "perplexity": math.exp(min(nll, 700.0)),
            "gradient_norm": sums.gradient_norm / max(self.steps - sums.skipped, 1),
            "target_tokens_per_s": sums.target_tokens / seconds,
            "source_tokens_per_s": sums.source_tokens / seconds,
            "steps_per_s": self.steps / seconds,
            "padding_share": 1 - tokens / sums.positions,
        }
        # With several steps per call, the step itself has taken its batches.
        if self.waits.count:
            metrics["waiting_for_data_share"] = self.waits.total / seconds
        if sums.skipped:
            metrics["skipped_updates"] = sums.skipped
        return metrics

    def _mean(self, total: float) -> float:
        """Returns a sum over the steps that were not skipped per target token."""
        sums = self.sums
        share = 1 - sums.skipped / self.steps
        return total / (share * sums.target_tokens) if share else math.nan


class Estimate(NamedTuple):
    """The remaining time of a training.

    Attributes:
        seconds: seconds until the training ends; with `is_cut`, until `max_minutes`
            ends it.
        is_cut: whether `max_minutes` ends the training.
        excludes_evaluations: whether evaluations are still to come and none has been
            measured yet.
    """

    seconds: float
    is_cut: bool = False
    excludes_evaluations: bool = False

    def __str__(self) -> str:
        if self.is_cut:
            return f"ends by max_minutes in {duration(self.seconds)}"
        suffix = " + evaluations" if self.excludes_evaluations else ""
        return f"ETA {duration(self.seconds)}{suffix}"


# rich's TimeRemainingColumn knows neither the evaluations and checkpoints to come nor
# the time limit.
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
    later_steps: Durations = dataclasses.field(default_factory=Durations)
    saves: Durations = dataclasses.field(default_factory=Durations)
    evaluations: Durations = dataclasses.field(default_factory=Durations)

    def add_step(self, seconds: float) -> None:
        """Adds the duration of a step, without checkpoints and evaluations."""
        if self.first_step is None:
            self.first_step = seconds
        else:
            self.later_steps.add(seconds)

    def estimate(self, step: int) -> Estimate:
        """Estimates the remaining time at a step, before it is saved or evaluated."""
        step_seconds = self.later_steps.mean or self.first_step or 0.0
        training = (self.steps.stop - step) * step_seconds
        if self.options.save_minutes:
            saves = training / (60 * self.options.save_minutes) + 1
        else:
            save_every = self.options.save_interval(self.steps.stop)
            saves = _count_multiples(save_every, step, self.steps.stop) + 1
        evaluations = 0
        if self.evaluations_at_end:
            eval_every = self.options.eval_every
            evaluations = _count_multiples(eval_every, step, self.steps.stop)
        seconds = (
            training + saves * self.saves.mean + evaluations * self.evaluations.mean
        )
        deadline = max(self.seconds_to_deadline(), 0.0)
        if deadline < seconds:
            return Estimate(deadline, is_cut=True)
        seconds += self.evaluations_at_end * self.evaluations.mean
        has_unmeasured = self.evaluations_at_end > 0 and not self.evaluations.count
        return Estimate(seconds, excludes_evaluations=has_unmeasured)


def _count_multiples(divisor: int, start: int, stop: int) -> int:
    """Returns the number of multiples of `divisor` in range(start, stop)."""
    return max(0, (stop - 1) // divisor - (start - 1) // divisor)
