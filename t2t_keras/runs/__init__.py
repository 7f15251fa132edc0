"""The run directory: what training writes and everything else reads.

`run_dir` opens it with its settings, vocabularies and model; `checkpoint` reads and
writes weights, and `average` averages them; `run_records` keeps the history of the run
and writes its model card; `reporting` writes `metrics.jsonl`, TensorBoard's events and
the progress bar; `train_options` has the options of a training that do not change its
steps.
"""

from pathlib import Path

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams


def is_run(path: str | Path) -> bool:
    """Returns whether a directory holds a run."""
    return (Path(path) / "config.json").exists()


def require_run(path: str | Path) -> None:
    """Refuses a path that is not a run directory.

    Raises:
        UserError: there is no run.
    """
    if not is_run(path):
        raise UserError(
            f"{path} is not a run directory: it has no config.json (the --output_dir "
            "of `t2t train` is one)"
        )


def first_hparams(hparams_set: str | None, init_from: str | Path | None) -> HParams:
    """Returns the hyper-parameters of a training, before any changes.

    Args:
        hparams_set: a registered name; None: those of the run `init_from`.
        init_from: the run, or a checkpoint in one, that gives the initial weights.

    Raises:
        UserError: there is no such set, or neither is given.
    """
    if hparams_set is not None:
        return registry.hparams(hparams_set)
    if init_from is None:
        raise UserError("--hparams_set is missing; `t2t list` prints the names")
    path = Path(init_from)
    return HParams.load((path if is_run(path) else path.parent) / "hparams.json")
