"""The checkpoint that was best on dev is kept as `best.ckpt-STEP`."""

from collections.abc import Mapping

import tensorflow as tf

from t2t_keras.run.checkpoint import Checkpoint, snapshot
from t2t_keras.run.checkpoint_directory import CheckpointDirectory
from t2t_keras.training.evaluations import Evaluations
from t2t_keras.training.hooks import EvaluationReporter, Hook


class BestCheckpoint(Hook):
    """Keeps the weights of the best evaluation.

    Args:
        evaluations: the evaluations on dev.
        weights: the model's weights by their names in a checkpoint.
        checkpoints: the directory of the run's checkpoints.
    """

    def __init__(
        self,
        evaluations: Evaluations,
        weights: Mapping[str, tf.Variable],
        checkpoints: CheckpointDirectory,
    ) -> None:
        self._evaluations = evaluations
        self._weights = weights
        self._checkpoints = checkpoints

    def on_restore(self, step: int) -> None:
        """Saves the checkpoint of the best earlier evaluation, unless it is on disk.

        The one on disk is another one if `best_by` has changed, or if a killed process
        wrote it after that step. If the weights of the best evaluation are gone, all
        earlier evaluations are ignored.
        """
        best_step = self._evaluations.best_step
        if best_step is None or best_step in self._checkpoints.steps("best.ckpt"):
            return
        if best_step not in self._checkpoints.steps():
            self._evaluations.by_step = {}
            return
        checkpoint = Checkpoint(self._checkpoints.path(best_step))
        names = (*self._weights, "step")
        weights = {name: tf.constant(checkpoint.tensor(name)) for name in names}
        self._checkpoints.save_best(best_step, weights)

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Saves the weights if they are the best so far.

        This hook comes before the one that writes `metrics.jsonl`, because a recorded
        evaluation is not repeated after a kill.
        """
        if label == "dev" and self._evaluations.best_step == step:
            self._checkpoints.save_best(step, snapshot(self._weights, step))

    def evaluate_at_end(
        self, step: int, reporter: EvaluationReporter
    ) -> dict[str, object]:
        """Reports the metrics of the best checkpoint.

        Returns:
            "dev_best" with the step and the metrics.
        """
        best_step = self._evaluations.best_step
        if best_step is None:
            return {}
        metrics = self._evaluations.by_step[best_step]
        reporter.report_evaluation(best_step, "dev_best", metrics)
        return {"dev_best": {"step": best_step, **metrics}}
