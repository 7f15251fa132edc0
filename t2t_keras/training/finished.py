"""The recorded results of a training, which a start after its end returns."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from t2t_keras.run.history import read_history, trainings
from t2t_keras.training.options import TrainOptions
from t2t_keras.training.result import TrainResult

# The options on which the results depend.
_OPTIONS = ("eval_sentences", "best_by", "bleu_tokenize", "average_last")
# What each start of a training finds out for itself.
_EVERY_TIME = ("step", "stopped_by", "process_group")


def results(metrics: Mapping[str, object], options: TrainOptions) -> dict[str, object]:
    """Returns what `history.jsonl` keeps of the results of a training.

    Args:
        metrics: the metrics that `Trainer.train` returns.
        options: the options of the training.
    """
    names = {field.name for field in dataclasses.fields(TrainResult)}
    recorded = {k: v for k, v in metrics.items() if k in names.difference(_EVERY_TIME)}
    return {"options": _result_options(options), "results": recorded}


def recorded_results(
    run_dir: Path, step: int, stopped_by: str, options: TrainOptions
) -> dict[str, object] | None:
    """Returns the metrics of a training that has ended already.

    Args:
        run_dir: the run directory.
        step: the last step.
        stopped_by: what ends the training.
        options: the options of the training.

    Returns:
        The metrics; None: the last recorded training ended otherwise, or had other
        options.
    """
    earlier = trainings(read_history(run_dir, warns=False))
    ending = {"last_step": step, "stopped_by": stopped_by}
    ending["options"] = _result_options(options)
    if earlier and ending.items() <= earlier[-1].items():
        return earlier[-1].get("results")
    return None


def _result_options(options: TrainOptions) -> dict[str, object]:
    """Returns the options on which the results depend."""
    return {name: getattr(options, name) for name in _OPTIONS}
