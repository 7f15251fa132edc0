"""The evaluations of a training on dev, and what follows from them.

The best checkpoint is kept as `best.ckpt-STEP`, a training may end after some
evaluations without a new best, and averages of the weights are evaluated at its end.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.metrics import LOSS_METRICS, counts_line
from t2t_keras.problem import Problem
from t2t_keras.run.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    average_run,
    mean_weights,
    snapshot,
)
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.hooks import EvaluationReporter, Hook
from t2t_keras.training.metrics_files import read_evaluations
from t2t_keras.training.settings import TrainOptions


class Evaluations:
    """The metrics on dev by step, which `best_by` compares.

    Attributes:
        by_step: the metrics of each evaluated step.
    """

    def __init__(self, problem: Problem, options: TrainOptions) -> None:
        self.by_step: dict[int, dict[str, float]] = {}
        self._problem = problem
        self._options = options

    @property
    def best_step(self) -> int | None:
        """The step of the best evaluation, the earliest among equals."""
        candidates = self.by_step
        if self._options.best_by == "metric":
            # Evaluations without decoded sentences lack the metric.
            metric = metrics_of(self._problem).selection_metric
            with_metric = {}
            for step, metrics in self.by_step.items():
                if metric in metrics:
                    with_metric[step] = metrics
            candidates = with_metric or candidates
        return max(
            candidates,
            key=lambda step: (self.selection_score(candidates[step]), -step),
            default=None,
        )

    def selection_score(self, metrics: dict[str, float]) -> float:
        """Returns the score that `best_by` asks for: higher is better."""
        if math.isnan(metrics["nll"]):
            return -math.inf
        if self._options.best_by == "nll":
            return -metrics["nll"]
        return metrics_of(self._problem).selection_score(metrics)


class Validation(Hook):
    """Evaluates the current weights every `eval_every` steps and at the end.

    It reads the earlier evaluations of the run.
    """

    evaluations_at_end = 1

    def __init__(
        self,
        run_dir: Path,
        evaluator: Evaluator,
        evaluations: Evaluations,
        eval_sentences: int,
    ) -> None:
        self._run_dir = run_dir
        self.evaluator = evaluator
        self.evaluations = evaluations
        self._eval_sentences = eval_sentences

    def on_restore(self, step: int) -> None:
        """Reads the earlier evaluations of a training that resumes at a step."""
        self.evaluations.by_step = read_evaluations(self._run_dir, step)

    def on_train_begin(self) -> str | None:
        """Says which sentences the metrics are of, if not all are decoded."""
        return counts_line("dev", len(self.evaluator), self._eval_sentences) or None

    def evaluate(self, step: int, reporter: EvaluationReporter) -> dict[str, object]:
        """Evaluates the weights, unless this step has been evaluated already.

        Returns:
            "dev_nll", and "dev_metrics" with the problem's metrics, if sentences are
            decoded.
        """
        if step not in self.evaluations.by_step:
            metrics = self.measure(reporter)
            self.evaluations.by_step[step] = metrics
            reporter.report_evaluation(step, "dev", metrics)
        metrics = self.evaluations.by_step[step]
        problem_metrics = dict(metrics)
        for name in LOSS_METRICS:
            problem_metrics.pop(name, None)
        return {"dev_nll": metrics["nll"], "dev_metrics": problem_metrics}

    def measure(self, reporter: EvaluationReporter) -> dict[str, float]:
        """Returns the metrics of the weights that the model has now."""
        with reporter.evaluating():
            return self.evaluator.metrics(self._eval_sentences, reporter.task)


class BestCheckpoint(Hook):
    """Keeps the weights of the best evaluation."""

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


class Patience(Hook):
    """Ends a training after `patience` evaluations without a new best; 0: never."""

    def __init__(self, evaluations: Evaluations, patience: int) -> None:
        self._evaluations = evaluations
        self._patience = patience

    def stop_reason(self) -> str | None:
        """Returns "patience" if the best evaluation is too long ago."""
        if not self._patience:
            return None
        best_step = self._evaluations.best_step or 0
        waited = sum(step > best_step for step in self._evaluations.by_step)
        return "patience" if waited >= self._patience else None


class FinalAverages(Hook):
    """Evaluates the average of the last checkpoints, and the moving average.

    The average of the last checkpoints is kept as `average.ckpt-STEP`, unless it is
    worse than the last one alone, as it may be early in training.

    Args:
        validation: evaluates the model on dev.
        weights: the model's weights by their names in a checkpoint.
        moving_averages: by the names of the weights; empty without `ema_decay`.
        checkpoints: the run's.
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
            self._checkpoints.write(path, snapshot(self._weights, step))
            reporter.say(f"the average is kept: {path}")
        else:
            reporter.say(
                f"the average of {len(steps)} checkpoints is worse on dev than step "
                f"{step} alone, so it is not kept"
            )
        return metrics


class UnevaluatedAverage(Hook):
    """Keeps the average of the last checkpoints where there is no dev split."""

    def __init__(self, run: RunDirectory, average_last: int) -> None:
        self._run = run
        self._average_last = average_last

    def on_train_begin(self) -> str:
        """Says that nothing is evaluated."""
        return "there are no dev data: nothing is evaluated, and no checkpoint is best"

    def on_last_step(self, step: int, reporter: EvaluationReporter) -> None:
        """Writes the average."""
        self._run.checkpoints.wait()
        count = min(len(self._run.checkpoints.steps()), self._average_last)
        if count > 1:
            self._run.checkpoints.require_place()
            average = average_run(self._run.path, count)
            reporter.say(f"the average of {count} checkpoints is kept: {average}")
