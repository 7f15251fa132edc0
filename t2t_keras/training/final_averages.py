"""Evaluates and keeps the averages of a training's weights at its end."""

from collections.abc import Mapping

import tensorflow as tf

from t2t_keras.run.averaging import average_run, mean_weights
from t2t_keras.run.checkpoint import Checkpoint, snapshot, write_checkpoint
from t2t_keras.run.checkpoint_directory import CheckpointDirectory
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.hooks import EvaluationReporter, Hook
from t2t_keras.training.validation import Validation


class FinalAverages(Hook):
    """Evaluates the average of the last checkpoints, and the moving average.

    The average of the last checkpoints is kept as `average.ckpt-STEP`, unless it is
    worse than the last one alone, as it may be early in training.

    Args:
        validation: evaluates the model on dev.
        weights: the model's weights by their names in a checkpoint.
        moving_averages: the moving averages by the names of the weights; empty without
            `ema_decay`.
        checkpoints: the directory of the run's checkpoints.
        average_last: the number of checkpoints to average; 0: none.
    """

    def __init__(
        self,
        validation: Validation,
        weights: Mapping[str, tf.Variable],
        moving_averages: Mapping[str, tf.Variable],
        checkpoints: CheckpointDirectory,
        average_last: int,
    ) -> None:
        self._validation = validation
        self._weights = weights
        self._moving_averages = moving_averages
        self._checkpoints = checkpoints
        self._average_last = average_last
        self.evaluations_at_end = bool(average_last) + bool(moving_averages)

    def evaluate_at_end(
        self, step: int, reporter: EvaluationReporter
    ) -> dict[str, object]:
        """Evaluates the averages; the weights are those of the step's checkpoint again.

        Returns:
            "dev_average" with the number of checkpoints, and "dev_ema". Each has loss,
            perplexity, accuracy and metrics.
        """
        self._checkpoints.wait()
        results: dict[str, object] = {}
        last_steps = self._checkpoints.steps()[-self._average_last :]
        if self._average_last and len(last_steps) > 1:
            metrics = self._evaluate_average(step, last_steps, reporter)
            results["dev_average"] = metrics
        if self._moving_averages:
            for name, average in self._moving_averages.items():
                self._weights[name].assign(average.read_value())
            metrics = self._validation.measure(reporter)
            results["dev_ema"] = metrics
            reporter.report_evaluation(step, "dev_ema", metrics)
        Checkpoint(self._checkpoints.path(step)).restore(self._weights)
        return results

    def _evaluate_average(
        self, step: int, steps: list[int], reporter: EvaluationReporter
    ) -> dict[str, float]:
        """Evaluates the average of some checkpoints; keeps it if it is good."""
        means = mean_weights([self._checkpoints.path(step) for step in steps])
        for name, value in means:
            self._weights[name].assign(value)
        metrics = {"checkpoints": len(steps), **self._validation.measure(reporter)}
        reporter.report_evaluation(step, "dev_average", metrics)
        last_metrics = self._validation.evaluations.by_step.get(step)
        score = self._validation.evaluations.selection_score
        if last_metrics is None or score(metrics) >= score(last_metrics):
            path = self._checkpoints.path(step, "average.ckpt")
            write_checkpoint(path, snapshot(self._weights, step))
            reporter.say(f"the average is kept: {path}")
        else:
            reporter.say(
                f"the average of {len(steps)} checkpoints is worse on dev than step "
                f"{step} alone, so it is not kept"
            )
        return metrics


class UnevaluatedAverage(Hook):
    """Keeps the average of the last checkpoints where there is no dev split.

    Args:
        run: the run directory.
        average_last: the number of checkpoints to average; 0: none.
    """

    def __init__(self, run: RunDirectory, average_last: int) -> None:
        self._run = run
        self._average_last = average_last

    def on_last_step(self, step: int, reporter: EvaluationReporter) -> None:
        """Writes the average."""
        self._run.checkpoints.wait()
        count = min(len(self._run.checkpoints.steps()), self._average_last)
        if count > 1:
            average = average_run(self._run.path, count)
            reporter.say(f"the average of {count} checkpoints is kept: {average}")
