"""What a run reports: a log line, `metrics.jsonl`, and TensorBoard."""

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from t2t_keras.training.step import StepResult


class Progress:
    """Counts tokens and time; writes figures to standard error, a file, TensorBoard.

    Args:
        output_dir: where `metrics.jsonl` and the event files go; None: nowhere, and
            nothing is printed.
        steps: that this process will run, from which the time left is reckoned.
    """

    def __init__(self, output_dir: Path | None, steps: range) -> None:
        self._is_silent = output_dir is None
        if output_dir:
            self._file = (output_dir / "metrics.jsonl").open("a", encoding="utf-8")
            self._events = tf.summary.create_file_writer(str(output_dir))
        self._steps = steps
        self._seconds_done = 0.0  # of training, over all intervals
        self._new_interval()

    def _new_interval(self) -> None:
        self._start = time.monotonic()
        self._seconds_waiting = self._seconds_paused = 0.0
        self._results: list[StepResult] = []

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around waiting for data."""
        start = time.monotonic()
        yield
        self._seconds_waiting += time.monotonic() - start

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Around what is not training: its time does not count."""
        start = time.monotonic()
        yield
        self._seconds_paused += time.monotonic() - start

    def count(self, result: StepResult) -> None:
        """Counts a step."""
        self._results.append(result)

    @property
    def pending(self) -> bool:
        """Whether steps have been counted since the last report."""
        return bool(self._results)

    def report_training(self, step: int, extra: dict[str, float]) -> dict[str, float]:
        """Reports the interval since the last call, and begins a new one.

        Args:
            step: the number of updates done.
            extra: more figures, reported as they are.

        Returns:
            loss and perplexity for each target token (label-smoothed), the gradient's
            norm, tokens per second, and the shares of padding and of waiting.
        """
        seconds = time.monotonic() - self._start - self._seconds_paused
        self._seconds_done += seconds
        columns = zip(*self._results, strict=True)
        sums = StepResult(*(sum(map(float, column)) for column in columns))
        loss = sums.loss_sum / sums.target_tokens
        tokens = sums.source_tokens + sums.target_tokens
        left = (self._steps.stop - step) / (step - self._steps.start)
        figures = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "gradient_norm": sums.gradient_norm
            / max(len(self._results) - sums.skipped, 1),
            "target_tokens_per_s": sums.target_tokens / seconds,
            "source_tokens_per_s": sums.source_tokens / seconds,
            "steps_per_s": len(self._results) / seconds,
            "padding_share": 1 - tokens / sums.positions,
            "waiting_for_data_share": self._seconds_waiting / seconds,
            "minutes_left": self._seconds_done * left / 60,
        }
        if sums.skipped:
            figures["skipped_updates"] = sums.skipped
        self.report(step, "train", figures | extra)
        self._new_interval()
        return figures

    def report(self, step: int, kind: str, figures: dict[str, float]) -> None:
        """Reports figures at a step.

        Args:
            step: the number of updates done.
            kind: "train", "dev", or one of those of `Validation.compare`.
            figures: name -> number; names carry their unit where they have one.
        """
        if self._is_silent:
            return
        record = {"step": step, "kind": kind, **figures}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        with self._events.as_default(step=step):
            for name, value in figures.items():
                # TensorBoard keeps float32, for which a perplexity may be too much.
                number = tf.constant(value, tf.float64)
                tf.summary.scalar(f"{kind}/{name}", number)
        self._events.flush()
        shown = " | ".join(f"{name} {_short(value)}" for name, value in figures.items())
        self.say(f"step {step} {kind} | {shown}")

    def say(self, message: str) -> None:
        """Prints a line on standard error."""
        if not self._is_silent:
            print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Closes the files."""
        if not self._is_silent:
            self._file.close()
            self._events.close()


def _short(value: float) -> str:
    """Four significant digits, thousands in full."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
