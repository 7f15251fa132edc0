"""The training of one trial where the study cannot be reached: another one reports."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.ranged_hparams import Value
from t2t_keras.training.hooks import Hook

from .settings import SweepSettings
from .trial_process import status_of, train_trial

_PROGRAM = (
    "import sys; from t2t_keras.plugins.sweep.remote_trial import main; "
    "main(*sys.argv[1:])"
)


def command(
    settings: SweepSettings, hparams: Mapping[str, Value], run_dir: Path
) -> list[str]:
    """Returns the command of a trial, without Python; see `trials.TrialProcess`.

    Args:
        settings: the settings of the sweep.
        hparams: the hyper-parameters that have a range.
        run_dir: the run directory of the trial.
    """
    # -P keeps Python from importing modules of the working directory.
    words = ["-P", "-c", _PROGRAM, json.dumps(settings.to_json())]
    return [*words, json.dumps(dict(hparams)), str(run_dir)]


def main(settings: str, hparams: str, run_dir: str) -> None:
    """Trains a trial, or resumes its training.

    Args:
        settings: the settings of the sweep, in JSON.
        hparams: the hyper-parameters that have a range, in JSON.
        run_dir: the run directory of the trial.
    """
    hook = _BeginHook()
    path = Path(run_dir)
    sweep = SweepSettings.from_json(json.loads(settings))
    try:
        train_trial(sweep, json.loads(hparams), path, hook)
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1 if hook.has_begun else status_of(error)) from None


class _BeginHook(Hook):
    """Notes that the training begins.

    Attributes:
        has_begun: whether it has.
    """

    def __init__(self) -> None:
        self.has_begun = False

    def on_train_begin(self) -> None:
        """Notes it."""
        self.has_begun = True
