"""The trainer: problem and hparams in, a run directory out."""

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from t2t_keras.data.pipeline import damage_named
from t2t_keras.data.training_data import TrainingData
from t2t_keras.errors import UserError
from t2t_keras.run.averaging import average_run
from t2t_keras.run.checkpoint import model_variables, snapshot
from t2t_keras.run.directory import RunDirectory
from t2t_keras.signals import SIGNALS
from t2t_keras.training.callbacks import Callbacks
from t2t_keras.training.fine_tune import initialise_from
from t2t_keras.training.largest_batch import try_largest_batch
from t2t_keras.training.optimizer import learning_rate, make_optimizer
from t2t_keras.training.options import TrainOptions
from t2t_keras.training.process_group import ProcessGroup
from t2t_keras.training.reporting import Reporter, TimeLeft
from t2t_keras.training.step import StepResult, TrainStep
from t2t_keras.training.stopping import Stopping
from t2t_keras.training.strategy import devices_text, distribute, own_replicas
from t2t_keras.training.validation import Validation

_SIGNALS = tuple(signal.name for signal in SIGNALS)
_REASONS = (*_SIGNALS, "train_steps", "max_minutes", "patience", "callback")

_DIVERGED = 10.0  # times the loss of the uniform distribution
_STEPS_BETWEEN_STOP_CHECKS = 10
_MOST_SKIPPED = 50  # updates in a row, each of which halves float16's loss scale
_REMEDY = "a lower learning_rate, a longer warmup_steps or clip_norm=1"


class Trainer:
    """Trains the model of a run directory, from its newest checkpoint if it has one.

    A run that was killed and started again ends with the weights, bit for bit, of one
    that never stopped: initial values, order of the data and dropout are functions of
    the seed and the step, and operations are deterministic.

    Of several processes each runs this loop on its own replicas. The first one, the
    chief, alone evaluates and writes. All processes stop together.

    Args:
        run: the run directory.
        strategy: the strategy, which has the replicas.
        options: how the run is watched, saved and ended.
        data: the examples to train on.
        callbacks: Keras callbacks, which the chief calls; see `Callbacks`.
    """

    def __init__(
        self,
        run: RunDirectory,
        strategy: tf.distribute.Strategy,
        options: TrainOptions,
        data: TrainingData,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> None:
        self._run = run
        self._hparams = run.hparams
        self._strategy = strategy
        self._options = options
        self._data = data
        self._group = ProcessGroup.from_strategy(strategy)
        self._asked = -1  # the last interval of steps in which processes asked
        self._micro_batches = run.config.micro_batches(strategy.num_replicas_in_sync)
        seed = run.config.seed
        keras.utils.set_random_seed(seed)
        if tf.config.list_logical_devices("GPU"):
            # On a CPU the operations are deterministic without, and up to 10% faster.
            tf.config.experimental.enable_op_determinism()
        with strategy.scope():
            self.model = run.build_model()
            self._weights = model_variables(self.model)
            trainable = model_variables(self.model, trainable=True)
            optimizer = make_optimizer(trainable, self._hparams)
            self._step = TrainStep(
                self.model, optimizer, strategy, seed, self._micro_batches
            )
        self._variables = self._weights | self._step.variables
        self._save_interval = options.save_interval(self._hparams.train_steps)
        self._validation: Validation | None = None
        if self._group.is_chief:
            averages = self._step.ema.averages if self._step.ema else {}
            self._validation = Validation.open(run, self.model, averages, options)
        self._callbacks = Callbacks(
            callbacks if self._group.is_chief else (),
            self.model,
            self._hparams,
            options.eval_every,
            has_dev=self._validation is not None,
        )

    def train(self) -> dict[str, Any]:
        """Trains up to `train_steps`, or until something else ends it.

        Returns:
            The last metrics: step, stopped_by (train_steps, patience, max_minutes,
            callback, SIGTERM, SIGINT or SIGHUP), loss, target_tokens_per_s, dev_loss,
            dev_metrics and those of `Validation.compare`.

        Raises:
            UserError: the training has diverged.
        """
        stopping = Stopping(self._options.max_minutes)
        done = self._restore()
        steps = range(done, self._hparams.train_steps)
        path = self._run.path if self._group.is_chief else None
        # Of the last weights, the average and the moving average.
        evaluations = 1 + bool(self._options.average_last) + bool(self._step.ema)
        time_left = TimeLeft(
            steps,
            self._options,
            evaluations if self._validation else 0,
            lambda: stopping.seconds_left,
        )
        start = self._saved_time  # when it was restored
        reporter = Reporter(path, steps, time_left, self._callbacks.record)
        with contextlib.closing(reporter):
            metrics = self._train(steps, reporter, stopping)
        if self._group.is_chief and metrics["step"] > done:
            self._run.record(
                "training",
                first_step=done,
                last_step=metrics["step"],
                minutes=(time.monotonic() - start) / 60,
                devices=devices_text(self._strategy),
                stopped_by=metrics["stopped_by"],
                eval_sentences=self._options.eval_sentences,
            )
        self._group.last_barrier()  # the chief evaluates
        if stopping.signal:  # perhaps while it evaluated for the last time
            metrics["stopped_by"] = stopping.signal.name
        return metrics

    def _train(
        self, steps: range, reporter: Reporter, stopping: Stopping
    ) -> dict[str, Any]:
        options, done = self._options, steps.start
        metrics: dict[str, Any] = {}
        if steps:
            self._begin(reporter)
            self._callbacks.begin()
        with stopping, self._run.checkpoints.awaited():
            if done and done % options.eval_every == 0:
                metrics |= self._evaluate(done, reporter, stopping)
            batches = self._batches(steps)
            while not (reason := self._reason_to_stop(done, stopping)):
                done = self._run_steps(done, batches, reporter)
                if done % options.log_every == 0:
                    metrics |= self._report(done, reporter)
                if self._saving_is_due(done):
                    with reporter.saving():
                        self._save(done)
                if done % options.eval_every == 0:
                    metrics |= self._evaluate(done, reporter, stopping)
            if reporter.pending:
                metrics |= self._report(done, reporter)
            # A loss scale may still be falling.
            if done > steps.start and not self._step.loss_scale:
                self._stop_if_skipped(min(_MOST_SKIPPED, done - steps.start), done)
            if done != self._saved_step:
                self._save(done)
            if done and reason not in _SIGNALS:
                metrics |= self._evaluate(done, reporter, stopping, at_end=True)
                if reason == "train_steps" and not self._validation:
                    self._keep_average(reporter)
        if steps:
            self._callbacks.end()
        return metrics | {"step": done, "stopped_by": reason}

    def _run_steps(
        self, first: int, batches: Iterator[tuple[tf.Tensor, ...]], reporter: Reporter
    ) -> int:
        """Runs one call's steps from `first` on; returns the number of updates so far.

        A call ends where something else is due.
        """
        options = self._options
        due = (options.log_every, options.eval_every, self._save_interval)
        done = min(
            first + options.steps_per_call,
            self._hparams.train_steps,
            *(first + every - first % every for every in due),
        )
        rates = [learning_rate(self._hparams, n) for n in range(first + 1, done + 1)]
        with damage_named(self._data.index):
            result = self._update(batches, first, rates, reporter)
        reporter.count(done, result, steps=done - first)
        return done

    def _update(
        self,
        batches: Iterator[tuple[tf.Tensor, ...]],
        step: int,
        rates: Sequence[float],
        reporter: Reporter,
        dry_run: bool = False,
    ) -> StepResult:
        """Runs a step for each learning rate."""
        if self._options.steps_per_call > 1:
            return self._step.update_from(batches, step, rates, dry_run)
        with reporter.waiting():
            batch = next(batches)
        (rate,) = rates
        return self._step.update(batch, step, rate, dry_run)

    def _keep_average(self, reporter: Reporter) -> None:
        """Keeps the average of the last checkpoints where there is no dev split."""
        self._run.checkpoints.wait()
        count = min(len(self._run.checkpoints.steps()), self._options.average_last)
        if self._group.is_chief and count > 1:
            average = average_run(self._run.path, last=count)
            reporter.say(f"the average of {count} checkpoints is kept: {average}")

    def _reason_to_stop(self, done: int, stopping: Stopping) -> str | None:
        """Returns what ends training here, if anything: the same in all processes.

        Several processes ask each other every few steps only, because their hosts wait
        for it.
        """
        interval = done // _STEPS_BETWEEN_STOP_CHECKS
        is_due = interval != self._asked or done % self._options.eval_every == 0
        is_last = done >= self._hparams.train_steps
        if self._group.size > 1 and not (is_due or is_last):
            return None
        self._asked = interval
        reason = stopping.reason
        if is_last and not stopping.signal:
            reason = "train_steps"
        elif self._validation and self._validation.lost_patience:
            reason = reason or "patience"
        elif self._callbacks.stop_training:
            reason = reason or "callback"
        return self._group.all_reduce_first(reason, _REASONS)

    def _batches(self, steps: range) -> Iterator[tuple[tf.Tensor, ...]]:
        """Yields the distributed batch of every step."""
        strategy = self._strategy
        replicas, own = strategy.num_replicas_in_sync, own_replicas(strategy)
        parts = self._data.batches(steps, replicas, self._micro_batches, own)
        return iter(distribute(strategy, parts))

    def _begin(self, reporter: Reporter) -> None:
        """Says what will be trained, and tries what may fail: disk and memory."""
        plan, options = self._data.plan, self._options
        reporter.say(
            f"{self.model.count_params():,} parameters, "
            f"{devices_text(self._strategy)}, {len(plan):,} batches an epoch "
            f"with {plan.padding_share:.1%} padding"
        )
        left = self._hparams.train_steps - self._saved_step
        saves = -(-left // self._save_interval)
        if options.save_minutes:
            saves = options.keep
        self._run.checkpoints.require_space(
            self._variables, self._weights, saves, options.keep
        )
        held = snapshot(self._variables, 0)  # as while a checkpoint is written
        said = try_largest_batch(
            lambda batches: self._update(batches, 0, [0.0], reporter, dry_run=True),
            self._strategy,
            self._data.largest_shape,
            self._hparams.batch_tokens,
            self._micro_batches,
            self._data.aligned,
        )
        del held
        if said:
            reporter.say(said)

    def _restore(self) -> int:
        """Restores the newest checkpoint, if any; returns the number of steps done.

        Without one, the weights may come from another run.
        """

        def say(message: str) -> None:
            if self._group.is_chief:
                print(message, file=sys.stderr)

        done = self._run.checkpoints.restore_newest(
            self._variables, self._step.counters, say
        )
        origin = self._run.config.init_from
        if origin and not self._run.checkpoints.steps():
            say(initialise_from(origin, self.model, self._run.tokenizers))
        if done != self._group.broadcast(done):
            raise UserError(
                f"--output_dir: {self._run.path} is another directory here than where "
                "the chief runs; all processes need one that they share"
            )
        if self._group.is_chief:
            self._run.checkpoints.set_aside(done)
        if self._validation:
            self._validation.resume(done)
        self._saved_step, self._saved_time = done, time.monotonic()
        return done

    def _saving_is_due(self, done: int) -> bool:
        if self._options.save_minutes:
            minutes = (time.monotonic() - self._saved_time) / 60
            return minutes >= self._options.save_minutes
        return done % self._save_interval == 0

    def _save(self, step: int) -> None:
        if not self._group.is_chief:
            return
        self._stop_if_skipped(_MOST_SKIPPED, step)
        variables = self._variables | self._step.counters
        self._run.checkpoints.start_saving(step, variables, keep=self._options.keep)
        self._saved_step, self._saved_time = step, time.monotonic()

    def _report(self, done: int, reporter: Reporter) -> dict[str, float]:
        """Reports the training since the last report.

        Fresh weights and those of other data have a loss of about log V, whatever the
        model, and a training that learns stays below.

        Raises:
            UserError: it has diverged, or the last checkpoint could not be written.
        """
        self._run.checkpoints.raise_error()
        rate, epoch = learning_rate(self._hparams, done), done / len(self._data.plan)
        metrics = reporter.report_training(
            done, {"learning_rate": rate, "epoch": epoch}
        )
        self._stop_if_skipped(_MOST_SKIPPED, done)
        guessing = math.log(self._run.tokenizers[1].vocab_size)
        if metrics["loss"] > _DIVERGED * guessing:
            raise UserError(
                f"step {done}: the training has diverged: its loss, "
                f"{metrics['loss']:.4g} for each target token, is far above a loss by "
                f"guessing, {guessing:.4g}; train in a new --output_dir with {_REMEDY}"
            )
        return metrics

    def _evaluate(
        self, step: int, reporter: Reporter, stopping: Stopping, at_end: bool = False
    ) -> dict[str, Any]:
        """Evaluates on dev, unless there is none or a signal has come or comes.

        Args:
            step: the number of updates done.
            reporter: see `Reporter`.
            stopping: see `Stopping`.
            at_end: whether to compare the best checkpoint and averages as well.
        """
        metrics: dict[str, Any] = {}
        with reporter.paused(), stopping.interruptible():
            if self._validation and not stopping.signal:
                metrics |= self._validation.evaluate(step, reporter)
                if at_end:
                    metrics |= self._validation.compare(step, reporter)
        return metrics

    def _stop_if_skipped(self, limit: int, done: int) -> None:
        """Stops if the last updates have all been skipped.

        Until then nothing is lost: a skipped update leaves everything as it was.
        """
        in_a_row = int(self._step.skipped_in_a_row.read_value())
        if in_a_row and in_a_row >= limit:
            raise UserError(
                f"step {done}: the loss or its gradient was not finite in the last "
                f"{in_a_row} updates, which were skipped; continue from the last "
                f"checkpoint with {_REMEDY} and --change_settings"
            )
