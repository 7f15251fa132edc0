"""A trial of a sweep: its hyper-parameters, its scores, and its run directory."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from t2t_keras.metrics import short_number
from t2t_keras.ranged_hparams import Value

State = Literal["running", "complete", "pruned", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepTrial:
    """A trial.

    Attributes:
        index: its number, from 0.
        state: whether it is running, or how it has ended.
        hparams: the hyper-parameters that have a range.
        scores: the score of each evaluation by step.
        best_step: the step of the best score; None: there is no finite one.
        error: why it has failed.
    """

    index: int
    state: State
    hparams: Mapping[str, Value]
    scores: Mapping[int, float]
    best_step: int | None
    error: str

    @property
    def score(self) -> float | None:
        """The best score."""
        return None if self.best_step is None else self.scores[self.best_step]

    def to_json(self) -> dict[str, object]:
        """Returns what `t2t sweep --json` prints of it."""
        return {
            "trial": self.index,
            "state": self.state,
            "score": self.score,
            "step": self.best_step,
            "hparams": dict(self.hparams),
            "error": self.error or None,
        }


def shown_value(value: object) -> str:
    """Returns a score or a hyper-parameter for a line of text; None: nothing."""
    if value is None:
        return ""
    return short_number(value) if isinstance(value, float) else str(value)


def shown_hparams(hparams: Mapping[str, Value]) -> str:
    """Returns hyper-parameters for a line of text."""
    return " ".join(f"{name}={shown_value(value)}" for name, value in hparams.items())


def run_dir(directory: Path, index: int) -> Path:
    """Returns the run directory of a trial.

    Args:
        directory: the directory of the sweep.
        index: the number of the trial.
    """
    return directory / f"trial-{index:04}"
