"""The steps since the last report: their summed results, and the time they took."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator

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
        """Counts steps.

        Args:
            result: what a step returned, or the sum of what several returned.
            steps: how many.
        """
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

    def summary(self) -> dict[str, float]:
        """Returns the metrics for a line on the screen; see `metrics`."""
        sums = self.sums
        summary = {
            "loss": self._mean(sums.loss_sum),
            "nll": self._mean(sums.nll_sum),
            "target_tokens_per_s": sums.target_tokens / self.seconds,
        }
        if sums.skipped:
            summary["skipped_updates"] = sums.skipped
        return summary

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of these steps.

        Returns:
            Per target token, the label-smoothed loss, which is minimized, and the
            negative log-likelihood "nll" with its perplexity, which are comparable with
            dev's loss and perplexity; the gradient's norm, tokens per second, and the
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
