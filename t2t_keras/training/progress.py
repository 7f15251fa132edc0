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
        output_dir: where `metrics.jsonl` and the event files go.
        steps: that this process will run, from which the time left is reckoned.
    """

    def __init__(self, output_dir: Path, steps: range) -> None:
        self._file = (output_dir / "metrics.jsonl").open("a", encoding="utf-8")
        self._events = tf.summary.create_file_writer(str(output_dir))
        self._steps = steps
        self._seconds_done = 0.0  # of training, over all intervals
        self._new_interval()

    def _new_interval(self) -> None:
        self._start = time.monotonic()
        self._seconds_waiting = self._seconds_paused = 0.0
        self._results: list[StepResult] = []
        self._slots = 0

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
        sums = [sum(map(float, column)) for column in zip(*self._results, strict=True)]
        loss, source_tokens, target_tokens, slots, norms = sums
        left = (self._steps.stop - step) / (step - self._steps.start)
        figures = {
            "loss": loss / target_tokens,
            "perplexity": math.exp(min(loss / target_tokens, 700.0)),
            "gradient_norm": norms / len(self._results),
            "target_tokens_per_s": target_tokens / seconds,
            "source_tokens_per_s": source_tokens / seconds,
            "steps_per_s": len(self._results) / seconds,
            "padding_share": 1 - (source_tokens + target_tokens) / slots,
            "waiting_for_data_share": self._seconds_waiting / seconds,
            "minutes_left": self._seconds_done * left / 60,
        }
        self.report(step, "train", figures | extra)
        self._new_interval()
        return figures

    def report(self, step: int, kind: str, figures: dict[str, float]) -> None:
        """Reports figures at a step.

        Args:
            step: the number of updates done.
            kind: "train" or "dev".
            figures: name -> number; names carry their unit where they have one.
        """
        record = {"step": step, "kind": kind, **figures}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        with self._events.as_default(step=step):
            for name, value in figures.items():
                tf.summary.scalar(f"{kind}/{name}", value)
        self._events.flush()
        shown = " | ".join(f"{name} {_short(value)}" for name, value in figures.items())
        self.say(f"step {step} {kind} | {shown}")

    def say(self, message: str) -> None:
        """Prints a line on standard error."""
        print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        self._events.close()


def _short(value: float) -> str:
    """Four significant digits, thousands in full."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
