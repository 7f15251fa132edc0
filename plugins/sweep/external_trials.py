"""The trials of a sweep whose processes another plugin runs."""

from collections.abc import Mapping
from pathlib import Path

from t2t_keras import registry
from t2t_keras.console import say
from t2t_keras.training.trials import TrialProcess

from .refusals import Refusals
from .remote_trial import command
from .report import Report
from .study import SweepStudy
from .trial import run_dir


class ExternalTrials:
    """`trials.Trials` of a study, which only this process writes.

    Args:
        directory: the directory of the sweep.
        study: its study.
        workers: the number of trials at a time.
        count: the number of trials that are wanted, those of earlier calls included.
        report: tells what happens.
    """

    def __init__(
        self,
        directory: Path,
        study: SweepStudy,
        workers: int,
        count: int,
        report: Report,
    ) -> None:
        settings = study.settings
        hparams = registry.hparams(settings.hparams_set).parse(settings.hparams)
        self.directory = directory.absolute()
        self.metric = settings.metric
        self.maximizes = settings.direction == "maximize"
        self.steps = settings.train_steps or hparams.train_steps
        self.eval_every = settings.train_options.eval_every
        self.prunes = settings.prunes
        self.startup_trials = settings.startup_trials
        self._study = study
        self._workers = workers
        self._count = count
        self._report = report
        self._unfinished = study.unfinished()
        self._running: dict[int, bool] = {}  # whether a trial had begun before
        self._refusals = Refusals()

    def next(self) -> TrialProcess | None:
        """Returns a trial to be resumed or begun; None: there is none now."""
        if len(self._running) == self._workers:
            return None
        if self._unfinished:
            index = self._unfinished.pop(0)
        elif not self.is_last() and self._study.is_next_possible():
            index = self._study.start_next()
        else:
            return None
        self._running[index] = self._study.begins(index) > 0
        path = run_dir(self.directory, index)
        path.mkdir(parents=True, exist_ok=True)
        hparams = self._study.trial(index).hparams
        return TrialProcess(index, command(self._study.settings, hparams, path), path)

    def is_last(self) -> bool:
        """Returns whether `next` has returned all trials."""
        return not self._unfinished and len(self._study) >= self._count

    def ended_scores(self) -> list[Mapping[int, float]]:
        """Returns the scores by step of each trial that has ended."""
        ended = [x for x in self._study.trials() if x.state != "running"]
        return [trial.scores for trial in ended]

    def on_start(self, index: int) -> None:
        """Says what a trial is about to do."""
        self._report.on_start(self._study.trial(index))

    def on_loss(self, index: int, reason: str) -> None:
        """Says why a trial starts again."""
        say(f"trial {index}: {reason}; it starts again")

    def report(self, index: int, scores: Mapping[int, float]) -> None:
        """Records the scores of a running trial by step."""
        if not self._study.begins(index):
            self._study.begin(index)
        self._study.report(index, scores)

    def complete(self, index: int) -> None:
        """Ends a trial that was trained to its last step."""
        score = self._study.trial(index).score
        if score is None:
            reason = f"no evaluation on dev has a finite {self.metric}"
            self.fail(index, reason, is_refused=False)
            return
        self._study.complete(index, score)
        self._refusals.clear()
        self._end(index)

    def prune(self, index: int) -> None:
        """Ends a trial that is behind others."""
        self._study.prune(index)
        self._refusals.clear()
        self._end(index)

    def fail(self, index: int, reason: str, is_refused: bool) -> None:
        """Ends a trial that has failed; see `trials.Trials`."""
        if is_refused:
            self._refusals.add(index, reason, self._running[index])
        else:
            self._refusals.clear()
        self._study.fail(index, reason)
        self._end(index)

    def _end(self, index: int) -> None:
        self._running.pop(index, None)
        self._report.on_end(self._study.trial(index))
