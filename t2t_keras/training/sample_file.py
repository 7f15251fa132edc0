"""The hook that writes `samples.jsonl`, see `run.dev_samples`."""

from pathlib import Path

from t2t_keras.data.log_files import open_log
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.run.dev_samples import NAME, samples_of, write_samples
from t2t_keras.training.hooks import Hook


class SampleFile(Hook):
    """Writes some of the sentences that each evaluation on dev has decoded.

    This hook comes before the one that writes `metrics.jsonl`, because a recorded
    evaluation is not repeated after a kill.

    Args:
        run_dir: the run directory.
        evaluator: the evaluator of dev.
    """

    def __init__(self, run_dir: Path, evaluator: Evaluator) -> None:
        self._path = run_dir / NAME
        self._evaluator = evaluator

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Writes the sentences of an evaluation; those of averages are not written."""
        decoded = self._evaluator.decoded
        if label != "dev" or decoded is None:
            return
        record = samples_of(step, self._evaluator.problem, decoded)
        with open_log(self._path) as file:
            write_samples(file, record)
