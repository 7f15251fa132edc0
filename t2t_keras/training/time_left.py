"""The remaining time of a training, with the checkpoints and evaluations to come."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from t2t_keras.data.console import duration
from t2t_keras.training.interval import Durations
from t2t_keras.training.options import TrainOptions


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
