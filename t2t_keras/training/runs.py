"""The run directory: what training writes and everything else reads.

`run_dir` opens it with its settings, vocabularies and model; `checkpoint` reads and
writes weights, and `average` averages them; `run_records` keeps the history of the run
and writes its model card; `reporting` writes `metrics.jsonl`, TensorBoard's events and
the progress bar; `train_options` has the options of a training that do not change its
steps.
"""

from pathlib import Path

from t2t_keras import registry
from t2t_keras.hparam import HParams
from t2t_keras.option import UserError


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


def run_of(init_from: str | Path) -> Path:
    """Returns the run that `--init_from` means: it is one, or a checkpoint in one.

    Raises:
        UserError: it is neither.
    """
    path = Path(init_from)
    if is_run(path):
        return path
    if not path.with_name(f"{path.name}.index").exists():
        raise UserError(f"--init_from: {path} is neither a run nor a checkpoint")
    return path.parent


def first_hparams(hparams_set: str | None, init_from: str | Path | None) -> HParams:
    """Returns the hyper-parameters of a training, before any changes.

    Args:
        hparams_set: a registered name; None: those of the run `init_from`.
        init_from: the run, or a checkpoint in one, that gives the initial weights.

    Raises:
        UserError: there is no such set, run or checkpoint, or neither is given.
    """
    run = None if init_from is None else run_of(init_from)
    if hparams_set is not None:
        return registry.hparams(hparams_set)
    if run is None:
        raise UserError("--hparams_set is missing; `t2t list` prints the names")
    return HParams.load(run / "hparams.json")
