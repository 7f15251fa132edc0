"""The run directory: what training writes and everything else reads.

`run_dir` opens it with its settings, vocabularies and model; `checkpoint` reads and
writes weights, and `average` averages them; `reporting` writes `metrics.jsonl`,
TensorBoard's events and the progress bar; `train_options` has the options of a training
that do not change its steps.
"""

from pathlib import Path

from t2t_keras.errors import UserError


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
