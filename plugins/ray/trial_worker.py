"""The actor of Ray Tune that runs the process of one trial."""

import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ray import tune

from t2t_keras.training.metrics_files import read_evaluations
from t2t_keras.training.trial_processes import failure_reason, start_trial
from t2t_keras.training.trials import OCCUPIED, REFUSED

from .process_environment import process_environment

STEP = "step"
SCORE = "score"  # the best one until the step
SCORES = "scores"  # all until the step, as pairs of a step and a score
ERROR = "error"  # why a trial has failed; "": it has not
IS_REFUSED = "is_refused"

_POLL_SECONDS = 0.1
_SECONDS_TO_SAVE = 60.0


def best_score(scores: Iterable[float], maximizes: bool) -> float:
    """Returns the best finite score; NaN: there is none."""
    best = max if maximizes else min
    return best(filter(math.isfinite, scores), default=math.nan)


class TrialWorker(tune.Trainable):
    """Trains a trial in a process; each `step` of Tune ends at an evaluation."""

    def setup(self, config: dict[str, Any], variables: Mapping[str, str]) -> None:
        """Starts the process, which resumes from the last checkpoint, if any.

        Args:
            config: the fields "run_dir", "command", "metric", "maximizes" and "steps"
                of `trials.Trials`, and "threads" of a process.
            variables: what is added to the environment of this actor.
        """
        self._config = config
        self._run_dir = Path(config["run_dir"])
        self._num_scores = 0
        threads = {"TF_NUM_INTRAOP_THREADS": str(config["threads"])}
        environment = threads | process_environment(variables)
        self._process = start_trial(config["command"], self._run_dir, environment)

    def step(self) -> dict[str, Any]:
        """Returns the scores after the next evaluation, or at the end of the process.

        Raises:
            RuntimeError: the trial can be resumed: a signal has ended the process, or
                an earlier one still has the run directory.
        """
        while True:
            status = self._process.poll()  # before its last evaluation is read
            scores = self._scores()
            if status is not None:
                return self._end(status, scores)
            # The last evaluation counts when the process has saved the last step.
            is_last = bool(scores) and max(scores) >= self._config["steps"]
            if len(scores) > self._num_scores and not is_last:
                self._num_scores = len(scores)
                return self._result(scores)
            time.sleep(_POLL_SECONDS)

    def cleanup(self) -> None:
        """Ends the process, which saves its last step."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_SECONDS_TO_SAVE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _scores(self) -> dict[int, float]:
        evaluations = read_evaluations(self._run_dir, sys.maxsize)
        name = self._config["metric"]
        return {step: metrics[name] for step, metrics in evaluations.items()}

    def _result(self, scores: dict[int, float]) -> dict[str, Any]:
        return {
            STEP: max(scores, default=0),
            SCORE: best_score(scores.values(), self._config["maximizes"]),
            SCORES: list(scores.items()),
        }

    def _end(self, status: int, scores: dict[int, float]) -> dict[str, Any]:
        reason = failure_reason(self._run_dir, status)
        if status < 0 or status > 128 or status == OCCUPIED:
            raise RuntimeError(reason)
        outcome = {"done": True, ERROR: reason if status else ""}
        return self._result(scores) | outcome | {IS_REFUSED: status == REFUSED}
