"""The hook that reports a trial's evaluations to the study, and prunes it."""

from pathlib import Path

from t2t_keras.training.hooks import Hook
from t2t_keras.training.metrics_files import read_evaluations

from .study import SweepStudy


class TrialHook(Hook):
    """Reports the score of each evaluation, and ends a trial that is behind others.

    Args:
        study: the study.
        index: the trial.
        run_dir: its run directory.

    Attributes:
        scores: the score of each evaluation by step.
    """

    def __init__(self, study: SweepStudy, index: int, run_dir: Path) -> None:
        self._study = study
        self._index = index
        self._run_dir = run_dir
        self._is_pruned = False
        self.scores: dict[int, float] = {}

    def on_restore(self, step: int) -> None:
        """Reports the earlier evaluations of a training that resumes at a step."""
        for evaluated, metrics in read_evaluations(self._run_dir, step).items():
            self.scores[evaluated] = metrics[self._study.settings.metric]
        self._study.begin(self._index)
        self._report()

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Reports the score on dev."""
        if label == "dev":
            self.scores[step] = metrics[self._study.settings.metric]
            self._report()

    def stop_reason(self) -> str | None:
        """Returns "pruned" if the trial is behind others."""
        return "pruned" if self._is_pruned else None

    def _report(self) -> None:
        self._study.report(self._index, self.scores)
        self._is_pruned = self._study.should_prune(self._index, self.scores)
