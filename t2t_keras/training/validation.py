"""The dev split during training: figures, the best checkpoint, patience."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.evaluation.metrics import goodness
from t2t_keras.training.average import mean_weights
from t2t_keras.training.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    snapshot,
    write_checkpoint,
)
from t2t_keras.training.held_out import HeldOut
from t2t_keras.training.options import TrainOptions
from t2t_keras.training.reporting import Progress


class Validation:
    """Evaluates a model on dev again and again, and remembers how it fared.

    Args:
        dev: the split.
        translator: around the model.
        weights: the model's, by their names in a checkpoint.
        averages: their moving averages, by the names of the weights, if there are any.
        checkpoints: where the best one is kept.
        options: `eval_sentences`, `best_by`, `patience`, `average_last`.
    """

    def __init__(
        self,
        dev: HeldOut,
        translator: Translator,
        weights: Mapping[str, tf.Variable],
        averages: Mapping[str, tf.Variable],
        checkpoints: CheckpointDirectory,
        options: TrainOptions,
    ) -> None:
        self._dev = dev
        self._translator = translator
        self._weights = weights
        self._averages = averages
        self._checkpoints = checkpoints
        self._options = options
        self._history: dict[int, dict[str, float]] = {}  # by step

    def resume(self, step: int) -> None:
        """Recalls the evaluations up to a step, where training goes on.

        The best checkpoint on the disk may be another than theirs: what is best is
        chosen in another way now, or it was written after that step, by a process that
        was killed. Then it is written again; if its weights are gone, what was
        evaluated before is forgotten.
        """
        file = self._checkpoints.directory / "metrics.jsonl"
        self._history = _read_evaluations(file, step)
        best = self.best_step
        if best is None or best in self._checkpoints.steps("best.ckpt"):
            return
        if best in self._checkpoints.steps():
            checkpoint = Checkpoint(self._checkpoints.path(best))
            names = (*self._weights, "step")
            weights = {name: tf.constant(checkpoint.tensor(name)) for name in names}
            self._checkpoints.save_best(best, weights)
        else:
            self._history = {}

    @property
    def best_step(self) -> int | None:
        """The step of the best evaluation, the first one among equals."""
        good = {step: self._good(figures) for step, figures in self._history.items()}
        return max(good, key=lambda step: (good[step], -step), default=None)

    def _good(self, figures: dict[str, float]) -> float:
        """Returns what `best_by` compares: more is better."""
        by_loss = self._options.best_by == "loss"
        return -figures["loss"] if by_loss else goodness(figures)

    @property
    def lost_patience(self) -> bool:
        """Whether the best evaluation is `patience` or more evaluations ago."""
        best = self.best_step
        if best is None or not self._options.patience:
            return False
        since = sum(step > best for step in self._history)
        return since >= self._options.patience

    def evaluate(self, step: int, progress: Progress) -> dict[str, Any]:
        """Reports the figures of the current weights; keeps them if they are the best.

        A step that has been evaluated is not evaluated again.

        Returns:
            dev_loss, and dev_metrics: BLEU or F1, if sentences are decoded.
        """
        if step not in self._history:
            self._history[step] = self._figures(progress)
            if self.best_step == step:
                self._checkpoints.save_best(step, snapshot(self._weights, step))
            # Last, for what is on record is not done again.
            progress.report(step, "dev", self._history[step])
        figures = self._history[step]
        of_loss = ("loss", "perplexity", "accuracy")
        metrics = {k: v for k, v in figures.items() if k not in of_loss}
        return {"dev_loss": figures["loss"], "dev_metrics": metrics}

    def compare(self, step: int, progress: Progress) -> dict[str, dict[str, float]]:
        """Reports the best single checkpoint beside the averages, after the last step.

        The average of the last checkpoints is kept as `average.ckpt-STEP`, unless it
        is worse than the last one alone: of the beginning of a training it may be.
        The weights are those of the step's checkpoint before and afterwards.

        Returns:
            dev_best, with its step; dev_average, of the last checkpoints, with their
            number; dev_ema. Each has loss, perplexity, accuracy and metrics.
        """
        found: dict[str, dict[str, float]] = {}
        best = self.best_step
        if best is not None:
            found["dev_best"] = {"step": best, **self._history[best]}
            progress.report(best, "dev_best", self._history[best])
        newest = self._checkpoints.steps()[-self._options.average_last :]
        if self._options.average_last and len(newest) > 1:
            paths = [self._checkpoints.path(step) for step in newest]
            for name, value in mean_weights(paths):
                self._weights[name].assign(value)
            figures = {"checkpoints": len(paths), **self._figures(progress)}
            found["dev_average"] = figures
            progress.report(step, "dev_average", figures)
            last = self._history.get(step)
            if last is None or self._good(figures) >= self._good(last):
                average = self._checkpoints.path(step, "average.ckpt")
                write_checkpoint(average, snapshot(self._weights, step))
                progress.say(f"the average is kept: {average}")
            else:
                progress.say(
                    f"the average of {len(paths)} checkpoints is worse on dev than "
                    f"step {step} alone: it is not kept"
                )
        if self._averages:
            for name, average in self._averages.items():
                self._weights[name].assign(average.read_value())
            found["dev_ema"] = self._figures(progress)
            progress.report(step, "dev_ema", found["dev_ema"])
        Checkpoint(self._checkpoints.path(step)).restore(self._weights)
        return found

    def _figures(self, progress: Progress) -> dict[str, float]:
        with progress.evaluating():
            figures = self._dev.loss(progress.task).to_dict()
            if self._options.eval_sentences:
                figures |= self._dev.metrics(
                    self._translator, self._options.eval_sentences, progress.task
                )
        return figures


def _read_evaluations(file: Path, last_step: int) -> dict[int, dict[str, float]]:
    """Returns the figures on dev by step, of those up to the last one.

    What comes later is of a process that was killed, and will be computed again.

    Raises:
        UserError: a line is no record of a training.
    """
    evaluations = {}
    lines = file.read_bytes().split(b"\n") if file.exists() else ()
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # half a line: the process was killed
        except UnicodeDecodeError:
            record = None
        match record:
            case {"step": int(step), "kind": "dev", "loss": float(loss), **rest}:
                if step <= last_step:
                    evaluations[step] = {"loss": loss, **rest}
            case {"step": int(), "kind": str(kind)} if kind != "dev":
                pass
            case _:
                raise UserError(
                    f"{file}, line {number} is no record of a training; remove the "
                    "line to do without it"
                )
    return evaluations
