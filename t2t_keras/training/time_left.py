"""How long a training still takes: steps, checkpoints and evaluations."""

import math
from collections.abc import Callable
from typing import NamedTuple

from t2t_keras.training.options import TrainOptions


class _Mean:
    """The mean of the durations measured so far."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Adds a duration."""
        self.count += 1
        self.total += seconds

    @property
    def seconds(self) -> float:
        """The mean, 0 of nothing."""
        return self.total / max(self.count, 1)


class Estimate(NamedTuple):
    """How long a training still takes.

    Attributes:
        seconds: until its end, or with `is_cut` until `--max_minutes` ends the steps.
        is_cut: it ends by `--max_minutes`.
        lacks_evaluations: there will be evaluations, and none has been measured yet.
    """

    seconds: float
    is_cut: bool = False
    lacks_evaluations: bool = False

    def __str__(self) -> str:
        if self.is_cut:
            return f"ends by --max_minutes in {duration(self.seconds)}"
        more = " + evaluations" if self.lacks_evaluations else ""
        return f"ETA {duration(self.seconds)}{more}"


class TimeLeft:
    """Estimates the time left from the durations measured so far.

    The number of steps, checkpoints and evaluations still to come is multiplied by the
    mean duration of each. The first step, which also traces the graph, counts only
    until there is a second one.

    Args:
        steps: that this process will run.
        options: `eval_every`, `save_every`, `save_minutes`.
        evaluations_at_end: of the last weights, and of their averages; 0: there are no
            evaluations at all.
        seconds_to_deadline: returns the seconds until `--max_minutes` ends training.
    """

    def __init__(
        self,
        steps: range,
        options: TrainOptions,
        evaluations_at_end: int = 0,
        seconds_to_deadline: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._stop = steps.stop
        self._options = options
        self._evaluations_at_end = evaluations_at_end
        self._seconds_to_deadline = seconds_to_deadline
        self._first_step: float | None = None
        self._steps = _Mean()
        self.saves = _Mean()
        self.evaluations = _Mean()

    def add_step(self, seconds: float) -> None:
        """Adds the duration of a step, without checkpoints and evaluations."""
        if self._first_step is None:
            self._first_step = seconds
        else:
            self._steps.add(seconds)

    def estimate(self, done: int) -> Estimate:
        """Estimates the time left after so many steps, before saving or evaluating."""
        step = self._steps.seconds if self._steps.count else self._first_step or 0.0
        training = (self._stop - done) * step
        if self._options.save_minutes:
            saves = training / (60 * self._options.save_minutes) + 1
        else:
            every = self._options.save_interval(self._stop)
            saves = _multiples(every, done, self._stop) + 1
        between = 0
        if self._evaluations_at_end:
            between = _multiples(self._options.eval_every, done, self._stop)
        evaluation = self.evaluations.seconds
        seconds = training + saves * self.saves.seconds + between * evaluation
        deadline = max(self._seconds_to_deadline(), 0.0)
        if deadline < seconds:
            return Estimate(deadline, is_cut=True)
        lacks = bool(self._evaluations_at_end and not self.evaluations.count)
        return Estimate(
            seconds + self._evaluations_at_end * evaluation, lacks_evaluations=lacks
        )


def _multiples(of: int, first: int, stop: int) -> int:
    """Returns how many multiples there are from the first number to before `stop`."""
    return max(0, (stop - 1) // of - (first - 1) // of)


def duration(seconds: float) -> str:
    """Formats a duration by its two largest units."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
