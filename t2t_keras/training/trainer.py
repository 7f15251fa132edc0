"""The trainer: problem and hparams in, a run directory out."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from t2t_keras.data.batching import BatchPlan
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.records import RecordIndex
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.training.checkpoint import (
    Checkpoint,
    adam_variables,
    model_variables,
)
from t2t_keras.training.held_out import HeldOut
from t2t_keras.training.optimizer import Adam
from t2t_keras.training.progress import Progress
from t2t_keras.training.run_dir import RunDirectory
from t2t_keras.training.schedule import learning_rate
from t2t_keras.training.step import StepResult, TrainStep
from t2t_keras.training.strategy import distribute


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How a run is watched and kept; nothing here changes the weights."""

    log_every: int = 100  # steps
    save_every: int = 1000
    eval_every: int = 1000
    eval_sentences: int = 500  # decoded on dev for BLEU or F1; 0: only the loss
    keep: int = 20  # checkpoints


class Trainer:
    """Trains the model of a run directory, from its newest checkpoint if it has one.

    A run that was killed and started again ends with the weights, bit for bit, of one
    that never stopped: initial values, order of the data and dropout are functions of
    the seed and the step, and operations are deterministic.
    """

    def __init__(
        self,
        run: RunDirectory,
        strategy: tf.distribute.Strategy,
        options: TrainOptions,
    ) -> None:
        self._run = run
        self._hparams = run.hparams
        self._problem = run.problem
        self._strategy = strategy
        self._options = options
        seed = run.config.seed
        keras.utils.set_random_seed(seed)
        tf.config.experimental.enable_op_determinism()
        with strategy.scope():
            self.model = run.build_model()
            weights = model_variables(self.model)
            optimizer = Adam(list(weights.values()), self._hparams)
            self._step = TrainStep(self.model, optimizer, strategy, seed)
        self._variables = weights | adam_variables(weights, optimizer)

        data_dir, name = Path(run.config.data_dir), self._problem.data_name
        self._index = RecordIndex.open(data_dir, name, "train")
        self._plan = BatchPlan(
            self._index.source_length,
            self._index.target_length,
            self._hparams.batch_tokens,
            seed,
        )
        self._dev: HeldOut | None = None
        if Manifest.open(data_dir, name).examples.get("dev"):
            index = RecordIndex.open(data_dir, name, "dev")
            self._dev = HeldOut(index, self.model, self._problem.reverse)
        self._translator = Translator(self._problem, self.model, *run.tokenizers)

    def train(self) -> dict[str, Any]:
        """Trains up to `train_steps`.

        Returns:
            The last figures: step, loss, target_tokens_per_s, dev_loss, dev_metrics.

        Raises:
            UserError: the loss is no longer a finite number.
        """
        options = self._options
        steps = range(self._restore(), self._hparams.train_steps)
        progress = Progress(self._run.path, steps)
        figures: dict[str, Any] = {"step": steps.start}
        if steps:
            progress.say(
                f"{self.model.count_params():,} parameters, "
                f"{self._strategy.num_replicas_in_sync} replicas, {len(self._plan):,} "
                f"batches an epoch with {self._plan.padding_share:.1%} padding"
            )
            self._try_largest_batch()
        elif self._dev:  # the run is complete: report what it has come to
            figures |= self._evaluate(self._dev, steps.start, progress)
        batches = self._batches(steps)
        for step in steps:
            done = step + 1
            is_last = done == steps.stop
            with progress.waiting():
                batch = next(batches)
            rate = learning_rate(self._hparams, done)
            result = self._step.update(
                batch, tf.constant(step, tf.int64), tf.constant(rate, tf.float32)
            )
            self._stop_unless_finite(result, step)
            progress.count(result)
            if done % options.log_every == 0 or is_last:
                epoch = done / len(self._plan)
                extra = {"learning_rate": rate, "epoch": epoch}
                figures |= progress.report_training(done, extra)
            if done % options.save_every == 0 or is_last:
                self._save(done)
            if self._dev and (done % options.eval_every == 0 or is_last):
                with progress.paused():
                    figures |= self._evaluate(self._dev, done, progress)
        progress.close()
        return figures | {"step": max(steps.start, steps.stop)}

    def _batches(self, steps: range) -> Iterator[Any]:
        """Yields the distributed batch of every step."""
        parts = training_batches(
            self._index,
            self._plan,
            steps,
            self._strategy.num_replicas_in_sync,
            self._problem.reverse,
        )
        return iter(distribute(self._strategy, parts))

    def _try_largest_batch(self) -> None:
        """Runs the largest batch once, so that what does not fit fails at once."""
        replicas = self._strategy.num_replicas_in_sync
        rows, source, target = self._plan.largest_shape()
        if self._problem.reverse:
            source, target = target, source
        part = tuple(tf.fill([-(-rows // replicas), n], 2) for n in (source, target))
        parts = tf.data.Dataset.from_tensors(part).repeat(replicas)
        (batch,) = distribute(self._strategy, parts)
        self._step.discard(batch, tf.constant(0, tf.int64))

    def _restore(self) -> int:
        """Restores the newest checkpoint, if any; returns the number of steps done."""
        steps = self._run.checkpoints.steps()
        if not steps:
            return 0
        checkpoint = Checkpoint(self._run.checkpoints.path(steps[-1]))
        checkpoint.restore(self._variables)
        return checkpoint.step

    def _save(self, step: int) -> None:
        tensors = {name: value.read_value() for name, value in self._variables.items()}
        tensors["step"] = tf.constant(step, tf.int64)
        self._run.checkpoints.save(step, tensors, keep=self._options.keep)

    def _evaluate(self, dev: HeldOut, step: int, progress: Progress) -> dict[str, Any]:
        """Reports loss, perplexity, accuracy and BLEU or F1 on the dev split."""
        loss, metrics = dev.loss(), {}
        if self._options.eval_sentences:
            metrics = dev.metrics(self._translator, self._options.eval_sentences)
        figures = {
            "loss": loss.loss,
            "perplexity": loss.perplexity,
            "accuracy": loss.accuracy,
        }
        progress.report(step, "dev", figures | metrics)
        return {"dev_loss": loss.loss, "dev_metrics": metrics}

    def _stop_unless_finite(self, result: StepResult, step: int) -> None:
        if math.isfinite(float(result.loss_sum) + float(result.gradient_norm)):
            return
        epoch, batch = divmod(step, len(self._plan))
        raise UserError(
            f"step {step + 1}, epoch {epoch}, batch {batch}: the loss or its gradient "
            "is not finite; train in a new --output_dir with a lower learning_rate, a "
            "longer warmup_steps or clip_norm=1"
        )
