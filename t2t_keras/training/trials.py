"""The trials of a search of hyper-parameters, for whatever runs their processes."""

import dataclasses
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

# Exit statuses of a trial that was refused before its first step, and of one whose run
# directory another process still has.
REFUSED = 2
OCCUPIED = os.EX_TEMPFAIL


@dataclasses.dataclass(frozen=True)
class TrialProcess:
    """What trains one trial, or resumes its training from its last checkpoint.

    Attributes:
        index: the number of the trial.
        command: the command, without Python. Its exit status is 0 after the last step,
            and 128 and the number of a signal that has ended it; its last line says
            why another one was returned.
        run_dir: its run directory, an absolute path; its `metrics.jsonl` has the scores
            of the evaluations.
    """

    index: int
    command: Sequence[str]
    run_dir: Path


class Trials(Protocol):
    """The trials of a search.

    Attributes:
        directory: the directory of the search, an absolute path.
        metric: the field of an evaluation by which trials are compared.
        maximizes: whether its best value is the largest.
        steps: the steps of each trial.
        eval_every: the steps between evaluations.
        prunes: whether trials that are behind others end early.
        startup_trials: the number of trials that are never ended early.
    """

    directory: Path
    metric: str
    maximizes: bool
    steps: int
    eval_every: int
    prunes: bool
    startup_trials: int

    def next(self) -> TrialProcess | None:
        """Returns a trial to be resumed or begun; None: there is none now."""

    def is_last(self) -> bool:
        """Returns whether `next` has returned all trials."""

    def ended_scores(self) -> Sequence[Mapping[int, float]]:
        """Returns the scores by step of each trial that has ended."""

    def on_start(self, index: int) -> None:
        """Notes that the process of a trial starts, also if it starts again."""

    def on_loss(self, index: int, reason: str) -> None:
        """Notes that the process of a trial was lost, and is about to start again."""

    def report(self, index: int, scores: Mapping[int, float]) -> None:
        """Records the scores of a running trial by step."""

    def complete(self, index: int) -> None:
        """Ends a trial that was trained to its last step."""

    def prune(self, index: int) -> None:
        """Ends a trial that is behind others."""

    def fail(self, index: int, reason: str, is_refused: bool) -> None:
        """Ends a trial that has failed.

        Args:
            index: the trial.
            reason: why it has failed.
            is_refused: whether its exit status was REFUSED.

        Raises:
            UserError: the reason is not in the trial, and would refuse all.
        """


# Runs the processes of all trials; returns the signal that has stopped it, if any.
TrialRunner = Callable[[Trials], signal.Signals | None]
