"""The training of one trial, in a process that `scheduler` starts."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError
from t2t_keras.files.atomic import OccupiedDirectory
from t2t_keras.ranged_hparams import Value
from t2t_keras.training.trials import OCCUPIED, REFUSED

from .settings import SweepSettings
from .trial import run_dir

if TYPE_CHECKING:
    from t2t_keras.training.hooks import Hook
    from t2t_keras.training.result import TrainResult

_SECONDS_TO_END = 120.0  # of an earlier process of the same trial
_SECONDS_BETWEEN_TRIES = 0.5


def main(directory: str, index: str) -> None:
    """Trains a trial, or resumes its training, and enters its end in the study.

    The process exits with `status_of` a `UserError`, whose message is its last line,
    and with 128 and the number of a signal that has ended the training.

    Args:
        directory: the directory of the sweep.
        index: the number of the trial.
    """
    from .study import storage_errors

    path = Path(directory)
    try:
        with storage_errors(path):
            _train(path, int(index))
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(status_of(error)) from None


def status_of(error: UserError) -> int:
    """Returns the exit status of a trial that an error has ended at its start."""
    return OCCUPIED if isinstance(error, OccupiedDirectory) else REFUSED


def _train(directory: Path, index: int) -> None:
    from .study import SweepStudy
    from .trial_hook import TrialHook

    study = SweepStudy.open(directory)
    settings = study.settings
    path = run_dir(directory, index)
    hook = TrialHook(study, index, path)
    stopped_by = train_trial(settings, study.trial(index).hparams, path, hook)
    best_step = settings.best(hook.scores)
    if best_step is None:
        raise UserError(f"no evaluation on dev has a finite {settings.metric}")
    if stopped_by == "pruned":
        study.prune(index)
    else:
        study.complete(index, hook.scores[best_step])


def train_trial(
    settings: SweepSettings, hparams: Mapping[str, Value], path: Path, hook: "Hook"
) -> str | None:
    """Trains with the hyper-parameters of a trial; returns what has ended it early.

    The process exits with 128 and the number of a signal that has ended the training.

    Args:
        settings: the settings of the sweep.
        hparams: the hyper-parameters that have a range.
        path: the run directory.
        hook: a hook of the training.

    Raises:
        OccupiedDirectory: an earlier process of the trial has not ended in two minutes.
        UserError: see `train`.
    """
    import tensorflow as tf

    from t2t_keras.devices import keep_compiled_programs
    from t2t_keras.training.hooks import HookPlugin
    from t2t_keras.training.train import train

    keep_compiled_programs()
    if not tf.config.list_physical_devices("GPU"):
        os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

    def begin() -> "TrainResult":
        return train(
            settings.problem,
            settings.hparams_set,
            data_dir=settings.data_dir,
            output_dir=path,
            hparams=settings.hparams_of(hparams),
            train_steps=settings.train_steps,
            seed=settings.seed,
            usr_dir=settings.usr_dir,
            options=settings.train_options,
            hooks=[HookPlugin("", lambda run, evaluator: hook)],
        )

    result = when_free(begin)
    if result.stopped_by in signal.Signals.__members__:
        raise SystemExit(128 + signal.Signals[result.stopped_by])
    return result.stopped_by


def when_free(begin: Callable[[], "TrainResult"]) -> "TrainResult":
    """Returns the result of a training, which may have to wait for its run directory.

    An earlier process of the trial may live on for a while: that of a sweep that was
    killed, or one on a node that a network failure has cut off.

    Args:
        begin: trains, unless another process has the run directory.

    Raises:
        OccupiedDirectory: another process still has it after two minutes.
    """
    deadline = time.monotonic() + _SECONDS_TO_END
    has_waited = False
    while True:
        try:
            return begin()
        except OccupiedDirectory as error:
            if time.monotonic() >= deadline:
                raise
            if not has_waited:
                print(f"waiting for its end: {error}", file=sys.stderr)
                has_waited = True
        time.sleep(_SECONDS_BETWEEN_TRIES)
