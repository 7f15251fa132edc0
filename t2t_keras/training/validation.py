"""Validation on dev during training: metrics, best checkpoint, early stopping."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from t2t_keras.data.manifest import Manifest
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.averaging import mean_weights
from t2t_keras.run.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    model_variables,
    snapshot,
    write_checkpoint,
)
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.options import TrainOptions
from t2t_keras.training.reporting import Reporter


@dataclasses.dataclass
class Validation:
    """Evaluates a model on dev during training, and keeps the best checkpoint.

    Attributes:
        evaluator: the evaluator for the model on dev.
        weights: the model's weights by their names in a checkpoint.
        averages: their moving averages by the names of the weights; empty without
            `ema_decay`.
        checkpoints: the directory in which the best checkpoint is kept.
        options: the options, of which `eval_sentences`, `best_by`, `patience` and
            `average_last` are used.
    """

    evaluator: Evaluator
    weights: Mapping[str, tf.Variable]
    averages: Mapping[str, tf.Variable]
    checkpoints: CheckpointDirectory
    options: TrainOptions
    _history: dict[int, dict[str, float]] = dataclasses.field(
        default_factory=dict, init=False
    )  # by step

    @classmethod
    def open(
        cls,
        run: RunDirectory,
        model: Transformer,
        averages: Mapping[str, tf.Variable],
        options: TrainOptions,
    ) -> Self | None:
        """Opens the dev split of a run's data.

        Args:
            run: the run directory.
            model: the model that is trained.
            averages: see above.
            options: see above.

        Returns:
            None if the data have no dev split.
        """
        data_dir, problem = run.config.data_dir, run.problem
        manifest = Manifest.open(Path(data_dir), problem.data_name)
        if not manifest.examples.get("dev"):
            return None
        translator = Translator(problem, model, *run.tokenizers)
        hashes = run.config.vocab_sha256
        evaluator = Evaluator.open(translator, "dev", data_dir, hashes)
        weights = model_variables(model)
        return cls(evaluator, weights, averages, run.checkpoints, options)

    def resume(self, step: int) -> None:
        """Reads the earlier evaluations of a training that resumes at a step.

        The best checkpoint on disk may not be the best one of them, because `best_by`
        has changed, or because a killed process wrote it after that step. Then the best
        one is written again; if its weights are no longer there, all earlier
        evaluations are ignored.
        """
        file = self.checkpoints.directory / "metrics.jsonl"
        self._history = _read_evaluations(file, step)
        best = self.best_step
        if best is None or best in self.checkpoints.steps("best.ckpt"):
            return
        if best in self.checkpoints.steps():
            checkpoint = Checkpoint(self.checkpoints.path(best))
            names = (*self.weights, "step")
            weights = {name: tf.constant(checkpoint.tensor(name)) for name in names}
            self.checkpoints.save_best(best, weights)
        else:
            self._history = {}

    @property
    def best_step(self) -> int | None:
        """The step of the best evaluation, the first one among equals."""
        scores = {
            step: self._selection_score(metrics)
            for step, metrics in self._history.items()
        }
        # By a metric, evaluations without sentences cannot be compared with others.
        metric = metrics_of(self.evaluator.problem).selection_metric
        known = {step for step in scores if metric in self._history[step]}
        if self.options.best_by == "metric" and known:
            scores = {step: scores[step] for step in known}
        return max(scores, key=lambda step: (scores[step], -step), default=None)

    def _selection_score(self, metrics: dict[str, float]) -> float:
        """Returns the selection score that `best_by` asks for: higher is better."""
        if math.isnan(metrics["loss"]):
            return -math.inf
        if self.options.best_by == "loss":
            return -metrics["loss"]
        return metrics_of(self.evaluator.problem).selection_score(metrics)

    @property
    def lost_patience(self) -> bool:
        """Whether the best evaluation is `patience` or more evaluations ago."""
        best = self.best_step
        if best is None or not self.options.patience:
            return False
        since = sum(step > best for step in self._history)
        return since >= self.options.patience

    def evaluate(self, step: int, reporter: Reporter) -> dict[str, Any]:
        """Reports the metrics of the current weights; keeps the weights if best so far.

        A step that has been evaluated is not evaluated again.

        Returns:
            "dev_loss", and "dev_metrics" with the problem's metrics, if sentences are
            decoded.
        """
        if step not in self._history:
            self._history[step] = self._measure(reporter)
            if self.best_step == step:
                self.checkpoints.save_best(step, snapshot(self.weights, step))
            # Reported last, because a recorded evaluation is not repeated.
            reporter.report(step, "dev", self._history[step])
        values = self._history[step]
        of_loss = ("loss", "perplexity", "accuracy")
        metrics = {k: v for k, v in values.items() if k not in of_loss}
        return {"dev_loss": values["loss"], "dev_metrics": metrics}

    def compare(self, step: int, reporter: Reporter) -> dict[str, dict[str, float]]:
        """Reports the best checkpoint and the averages, after the last step.

        The average of the last checkpoints is kept as `average.ckpt-STEP`, unless it is
        worse than the last one alone, as it may be early in training. Before and after
        the call, the weights are those of the step's checkpoint.

        Returns:
            "dev_best" with its step, "dev_average" with the number of checkpoints, and
            "dev_ema". Each has loss, perplexity, accuracy and metrics.
        """
        self.checkpoints.wait()
        found: dict[str, dict[str, float]] = {}
        best = self.best_step
        if best is not None:
            found["dev_best"] = {"step": best, **self._history[best]}
            reporter.report(best, "dev_best", self._history[best])
        newest = self.checkpoints.steps()[-self.options.average_last :]
        if self.options.average_last and len(newest) > 1:
            paths = [self.checkpoints.path(step) for step in newest]
            for name, value in mean_weights(paths):
                self.weights[name].assign(value)
            metrics = {"checkpoints": len(paths), **self._measure(reporter)}
            found["dev_average"] = metrics
            reporter.report(step, "dev_average", metrics)
            last = self._history.get(step)
            score = self._selection_score(metrics)
            if last is None or score >= self._selection_score(last):
                average = self.checkpoints.path(step, "average.ckpt")
                write_checkpoint(average, snapshot(self.weights, step))
                reporter.say(f"the average is kept: {average}")
            else:
                reporter.say(
                    f"the average of {len(paths)} checkpoints is worse on dev than "
                    f"step {step} alone, so it is not kept"
                )
        if self.averages:
            for name, average in self.averages.items():
                self.weights[name].assign(average.read_value())
            found["dev_ema"] = self._measure(reporter)
            reporter.report(step, "dev_ema", found["dev_ema"])
        Checkpoint(self.checkpoints.path(step)).restore(self.weights)
        return found

    def _measure(self, reporter: Reporter) -> dict[str, float]:
        with reporter.evaluating():
            sentences = self.options.eval_sentences
            return self.evaluator.metrics(sentences, reporter.task)


def _read_evaluations(file: Path, last_step: int) -> dict[int, dict[str, float]]:
    """Returns the metrics on dev by step, up to `last_step`.

    Later lines are from a process that was killed, and will be computed again.

    Raises:
        UserError: a line is not a record of a training.
    """
    evaluations: dict[int, dict[str, float]] = {}
    lines = file.read_bytes().split(b"\n") if file.exists() else ()
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # an incomplete line: the process was killed
        except UnicodeDecodeError:
            record = None
        match record:
            case {"step": int(step), "kind": "dev", "loss": float(loss)}:
                others = {k: v for k, v in record.items() if k not in ("step", "kind")}
                if step <= last_step:
                    evaluations[step] = {"loss": loss} | others
            case {"step": int(), "kind": str(kind)} if kind != "dev":
                pass
            case _:
                raise UserError(
                    f"{file}, line {number} is not a record of a training; remove the "
                    "line to do without it"
                )
    return evaluations
