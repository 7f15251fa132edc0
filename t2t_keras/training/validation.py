"""Evaluation on dev during a training."""

from pathlib import Path

from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.evaluation.metrics_line import LOSS_METRICS, counts_line
from t2t_keras.training.evaluations import Evaluations
from t2t_keras.training.hooks import EvaluationReporter, Hook
from t2t_keras.training.metrics_file import read_evaluations


class Validation(Hook):
    """Evaluates the current weights every `eval_every` steps and at the end.

    Args:
        run_dir: the run directory, whose earlier evaluations are read.
        evaluator: evaluates the model on dev.
        evaluations: gets the metrics.
        eval_sentences: the number of sentences to decode.
    """

    def __init__(
        self,
        run_dir: Path,
        evaluator: Evaluator,
        evaluations: Evaluations,
        eval_sentences: int,
    ) -> None:
        self._run_dir = run_dir
        self.evaluator = evaluator
        self.evaluations_at_end = 1
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
            "dev_loss", and "dev_metrics" with the problem's metrics, if sentences are
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
        return {"dev_loss": metrics["loss"], "dev_metrics": problem_metrics}

    def measure(self, reporter: EvaluationReporter) -> dict[str, float]:
        """Returns the metrics of the weights that the model has now."""
        with reporter.evaluating():
            return self.evaluator.metrics(self._eval_sentences, reporter.task)
