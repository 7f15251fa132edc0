"""How a training is watched, saved and ended; nothing here changes its updates.

Only `steps_per_call` changes their rounding. A signal or the time may end a training
before its last step.
"""

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Literal, Self

from t2t_keras.errors import UserError
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.options import check_options, option

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# The environment variable of processes that `t2t launch` started. The launcher passes
# signals on and reports failures, so a process that loses contact with another one ends
# silently, with the status LOST.
LAUNCHED = "T2T_LAUNCHED"
LOST = os.EX_UNAVAILABLE


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """When to log, save, evaluate and stop; `t2t train` takes each field.

    Raises:
        UserError: a value is impossible, or `best_by` needs sentences that are not
            decoded.
    """

    steps_per_call: int = option(
        1,
        "steps to run in one call of TensorFlow, without waiting for Python; signals "
        "and time limits are noticed between calls (default: 1)",
        ge=1,
    )
    log_every: int = option(100, "steps between log lines", ge=1)
    save_every: int | None = option(  # None: see `save_interval`
        None,
        "steps between checkpoints (default: a 40th of all, from 25 to 1000)",
        ge=1,
    )
    save_minutes: float = option(
        0.0, "minutes between checkpoints, instead of steps (the paper: 10)", ge=0
    )
    keep: int = option(20, "how many checkpoints to keep, besides the best one", ge=1)
    eval_every: int = option(1000, "steps between evaluations", ge=1)
    eval_sentences: int = option(
        500,
        "dev sentences to decode at each evaluation, for the metrics; 0: only the loss",
        ge=0,
    )
    best_by: Literal["loss", "metric"] = option(
        "loss",
        "how to choose the best checkpoint on dev: by loss (default), or by the "
        "problem's metric",
    )
    bleu_tokenize: Literal[BleuTokens, "auto"] = option(
        "auto",
        "sacreBLEU tokenization of BLEU on dev, and in later evaluations of the run; "
        "auto: that of the target language, or what the run has had (default)",
    )
    patience: int = option(
        0, "end after N evaluations without a new best (default: never)", ge=0
    )
    average_last: int = option(
        10,
        "number of checkpoints to average at the end; the average is evaluated and "
        "kept, and `t2t translate` and other commands use it (default: 10); 0: none",
        ge=0,
    )
    max_minutes: float = option(
        0.0, "end training after M minutes; run the command again to resume", ge=0
    )

    def __post_init__(self) -> None:
        check_options(TrainOptions, vars(self))
        if self.best_by == "metric" and not self.eval_sentences:
            raise UserError("best_by=metric needs --eval_sentences above 0")

    def save_interval(self, train_steps: int) -> int:
        """Returns the number of steps between checkpoints.

        The default is a 40th of all steps, so that the last ten checkpoints, which are
        averaged, cover the last quarter of the training; but at least 25 steps, because
        saving takes time, and at most 1000, because a failure loses the steps since the
        last checkpoint.
        """
        return self.save_every or min(max(train_steps // 40, 25), 1000)


def handled_signals() -> list[signal.Signals]:
    """Returns SIGNALS, but without SIGHUP if `nohup` has set it to be ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [x for x in SIGNALS if not (x is signal.SIGHUP and is_ignored)]


def leave_closed_terminal() -> None:
    """Discards what is printed to a terminal that is closed, where printing fails."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)


class Stopping:
    """A request to end training after the current step.

    As a context manager it takes SIGTERM (what batch systems and containers send before
    they kill), SIGINT (Ctrl-C) and SIGHUP (a terminal or connection was closed) as such
    a request. A second signal ends the process at once, as it does everywhere, unless
    it is SIGHUP, which the shell and the kernel both send. A process that was LAUNCHED
    takes all signals as one request, because it may get the same one directly and from
    its launcher, and leaves the second one to the launcher.

    Args:
        max_minutes: after which training is to end; 0: never.
    """

    def __init__(self, max_minutes: float = 0.0) -> None:
        seconds = 60 * max_minutes
        self._deadline = time.monotonic() + seconds if seconds else float("inf")
        self._previous: dict[signal.Signals, Any] = {}
        self._may_interrupt = False
        self.signal: signal.Signals | None = None

    @property
    def reason(self) -> str | None:
        """The signal's name, or "max_minutes"; None: training continues."""
        if self.signal:
            return self.signal.name
        return "max_minutes" if time.monotonic() >= self._deadline else None

    @property
    def seconds_left(self) -> float:
        """Seconds until "max_minutes" is the reason; infinite without."""
        return self._deadline - time.monotonic()

    def __enter__(self) -> Self:
        # In other threads Python allows no handlers, and signals do what they did.
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore_handlers()

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Lets a signal cut short what changes nothing, such as an evaluation."""
        self._may_interrupt = True
        try:
            yield
        except _Interrupted:
            pass
        finally:
            self._may_interrupt = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            return
        self.signal = signal.Signals(number)
        if LAUNCHED not in os.environ:
            for other in (signal.SIGTERM, signal.SIGINT):
                signal.signal(other, self._previous.pop(other))
        leave_closed_terminal()
        # Not by print, which may be what the signal has come into.
        note = f"{self.signal.name}: saving after this step; once more ends at once\n"
        with contextlib.suppress(OSError):  # nobody reads it
            os.write(2, note.encode())
        if self._may_interrupt:
            raise _Interrupted

    def _restore_handlers(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()


class _Interrupted(BaseException):
    """Leaves an interruptible block; not an Exception, lest someone catches it."""
