"""What a sweep tells: a line for each trial, the page, the result."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t2t_keras.console import busy, say
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import open_lines
from t2t_keras.metrics import short_number
from t2t_keras.run.checkpoint import CheckpointDirectory

from .best_two import (
    best_complete,
    best_first,
    indices_of_pair,
    read_test,
    test_on_dev,
    verdict,
)
from .settings import SweepSettings
from .study import SweepStudy
from .trial import SweepTrial, run_dir, shown_hparams
from .trials_page import trials_page

PAGE_NAME = "page.html"


class Report:
    """Tells what happens, and writes the page whenever a trial has ended.

    Args:
        directory: the directory of the sweep.
        study: its study.
        count: the number of trials that are wanted.
        advance: called with the number of trials that have ended since the last call.
    """

    def __init__(
        self,
        directory: Path,
        study: SweepStudy,
        count: int,
        advance: Callable[[int], None],
    ) -> None:
        self._directory = directory
        self._study = study
        self._count = count
        self._advance = advance

    def on_start(self, trial: SweepTrial) -> None:
        """Says what a trial is about to do."""
        checkpoints = CheckpointDirectory(run_dir(self._directory, trial.index))
        step = max(checkpoints.steps(), default=0)
        begins = f"resumes from step {step}:" if step else "has"
        say(f"trial {trial.index} {begins} {shown_hparams(trial.hparams)}")

    def on_end(self, trial: SweepTrial) -> None:
        """Says how a trial has ended."""
        text = f"trial {trial.index}: {trial.state}"
        if trial.score is not None:
            metric = self._study.settings.metric
            text += f", {metric} {short_number(trial.score)} at step {trial.best_step}"
        if trial.error:
            text += f": {trial.error}"
        say(text)
        self._advance(1)
        self._write_page()

    def result(self) -> dict[str, Any]:
        """Tests the best two trials, writes the last page, and returns the result.

        Raises:
            UserError: all trials have failed, or one cannot be evaluated.
        """
        settings = self._study.settings
        trials = self._study.trials()
        best = best_complete(trials, settings)
        if not best:
            failed = next((trial for trial in trials if trial.error), trials[0])
            raise UserError(
                f"no trial of {len(trials)} was trained to the end; trial "
                f"{failed.index}: {failed.error or failed.state}"
            )
        with busy("translating dev with the best two"):
            test = test_on_dev(self._directory, best)
        return {
            "metric": settings.metric,
            "best": best[0].to_json(),
            "run": str(run_dir(self._directory, best[0].index)),
            "trials": [trial.to_json() for trial in best_first(trials, best)],
            "test": test and test.to_json(),
            "verdict": verdict(test, settings, trials),
            "command": training_command(self._directory, best[0], settings),
            "page": str(self._write_page()),
        }

    def _write_page(self) -> Path:
        settings = self._study.settings
        trials = self._study.trials()
        best = best_complete(trials, settings)
        command = training_command(self._directory, best[0], settings) if best else ""
        test = read_test(self._directory)
        if test and test.trials != indices_of_pair(best):
            test = None  # another trial is among the best two now
        page = trials_page(
            self._directory.resolve().name, settings, trials, self._count, test, command
        )
        path = self._directory / PAGE_NAME
        with open_lines(path) as file:
            file.write(page)
        return path


def training_command(
    directory: Path, trial: SweepTrial, settings: SweepSettings
) -> str:
    """Returns the command of a training with the hyper-parameters of a trial."""
    words = ["t2t", "train", "--problem", settings.problem]
    words += ["--hparams_set", settings.hparams_set]
    words += ["--hparams", settings.hparams_of(trial.hparams)]
    words += ["--data_dir", settings.data_dir, "--output_dir", str(directory / "best")]
    if settings.usr_dir:
        words += ["--usr_dir", settings.usr_dir]
    return shlex.join(words)
