"""What Ray Tune needs of a search: its trials, its pruning, and who hears of them."""

import pickle
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.exceptions import RayTaskError
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from t2t_keras.errors import first_line
from t2t_keras.training.trials import Trials

from .cluster import LifeWatch
from .trial_worker import ERROR, IS_REFUSED, SCORE, SCORES, STEP, best_score

_INDEX = "index"


class StoppedError(Exception):
    """A signal has come."""


class TrialSearcher(Searcher):
    """Gives Tune the trials, each as the configuration of a `TrialWorker`.

    Args:
        trials: the trials.
        threads: the number of threads of each process.
    """

    def __init__(self, trials: Trials, threads: int) -> None:
        super().__init__()
        self._trials = trials
        self._threads = threads

    def suggest(self, trial_id: str) -> Any:
        """Returns the configuration of the next trial; None: there is none now."""
        trial = self._trials.next()
        if trial is None:
            return Searcher.FINISHED if self._trials.is_last() else None
        return {
            _INDEX: trial.index,
            "command": list(trial.command),
            "run_dir": str(trial.run_dir),
            "metric": self._trials.metric,
            "maximizes": self._trials.maximizes,
            "steps": self._trials.steps,
            "threads": self._threads,
        }

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Does nothing: `TrialEvents` reports to the trials."""

    def save(self, checkpoint_path: str) -> None:
        """Does nothing: the trials are kept by the search."""

    def restore(self, checkpoint_path: str) -> None:
        """Does nothing, see `save`."""


def pruning(trials: Trials) -> TrialScheduler:
    """Returns the scheduler that ends trials at evaluations."""
    return _Asha(trials) if trials.prunes else FIFOScheduler()


class _Asha(ASHAScheduler):
    """ASHA that knows the trials of earlier calls, and spares the first ones."""

    def __init__(self, trials: Trials) -> None:
        mode = "max" if trials.maximizes else "min"
        super().__init__(
            time_attr=STEP,
            metric=SCORE,
            mode=mode,
            max_t=max(trials.steps, trials.eval_every) + 1,  # no trial reaches it
            grace_period=trials.eval_every,
        )
        self._startup_trials = trials.startup_trials
        for index, scores in enumerate(trials.ended_scores()):
            ended = SimpleNamespace(trial_id=f"ended-{index}", config={_INDEX: index})
            self.on_trial_add(None, ended)
            so_far = []
            for step, score in scores.items():
                so_far.append(score)
                best = best_score(so_far, trials.maximizes)
                self.on_trial_result(None, ended, {STEP: step, SCORE: best})

    def on_trial_result(
        self, tune_controller: Any, trial: Any, result: dict[str, Any]
    ) -> str:
        """Returns whether a trial continues."""
        decision: str = super().on_trial_result(tune_controller, trial, result)
        is_spared = trial.config[_INDEX] < self._startup_trials
        return TrialScheduler.CONTINUE if is_spared else decision


class TrialEvents(Callback):
    """Reports to the trials what happens to them.

    Args:
        trials: the trials.

    Attributes:
        signal: the signal that ends the search.
    """

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._watch = LifeWatch("no trial has run")
        self.signal: signal.Signals | None = None

    def stop(self, received: signal.Signals) -> None:
        """Ends the search, whose trials save and end."""
        self.signal = received

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Ends the search after a signal, or when no trial runs for too long."""
        if self.signal:
            raise StoppedError
        waits = any(trial.status == Trial.PENDING for trial in trials)
        runs = any(trial.status == Trial.RUNNING for trial in trials)
        self._watch.check(runs or not waits)

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Says what a trial is about to do."""
        self._trials.on_start(trial.config[_INDEX])

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Records the scores."""
        self._trials.report(trial.config[_INDEX], dict(result[SCORES]))

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Ends a trial."""
        index = trial.config[_INDEX]
        result = trial.last_result
        if result.get(ERROR):
            self._trials.fail(index, result[ERROR], result[IS_REFUSED])
        elif ERROR in result:
            self._trials.complete(index)
        else:
            self._trials.prune(index)

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Says why a trial starts again."""
        self._trials.on_loss(trial.config[_INDEX], _reason(trial))

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Ends a trial whose process was lost too often."""
        self._trials.fail(trial.config[_INDEX], _reason(trial), is_refused=False)


def _reason(trial: Trial) -> str:
    """Returns why the process of a trial was lost."""
    # `get_pickled_error` reads a copy of this file, which may not be there yet.
    path = trial.pickled_error_file
    error = path and pickle.loads(Path(path).read_bytes())
    if isinstance(error, RayTaskError) and error.cause:
        return first_line(error.cause)
    return "the process or its node was lost"
