"""The trainer: problem and hparams in, a run directory out."""

import contextlib
import dataclasses
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import tensorflow as tf

from t2t_keras.data.augmentation import Augmentation, planned_lengths
from t2t_keras.data.batch_plan import BatchPlan, batch_plan
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import (
    damage_named,
    has_links,
    training_batches,
    training_index,
)
from t2t_keras.data.records import RecordIndex
from t2t_keras.decoding.translator import Translator
from t2t_keras.hparam import HParams
from t2t_keras.option import UserError
from t2t_keras.problem import Problem
from t2t_keras.training.average import average_run
from t2t_keras.training.checkpoint import (
    Checkpoint,
    DamagedCheckpoint,
    model_variables,
    snapshot,
)
from t2t_keras.training.device_memory import (
    does_not_fit,
    is_out_of_memory,
    memory_of_shape,
    synthetic_batches,
)
from t2t_keras.training.fine_tune import initialise_from
from t2t_keras.training.follow import open_split
from t2t_keras.training.optimizer import learning_rate, make_optimizer
from t2t_keras.training.reporting import Progress, StepResult, TimeLeft
from t2t_keras.training.run_dir import RunConfig, RunDirectory
from t2t_keras.training.step import TrainStep
from t2t_keras.training.stopping import SIGNALS, Stopping
from t2t_keras.training.strategy import (
    Cluster,
    devices_text,
    distribute,
    own_replicas,
)
from t2t_keras.training.train_options import TrainOptions
from t2t_keras.training.validation import Validation

_SIGNALS = tuple(signal.name for signal in SIGNALS)
_REASONS = (*_SIGNALS, "train_steps", "max_minutes", "patience")

_DIVERGED = 10.0  # times the loss of the uniform distribution
_STEPS_BETWEEN_STOP_CHECKS = 10
_MOST_SKIPPED = 50  # updates in a row, each of which halves float16's loss scale
_REMEDY = "a lower learning_rate, a longer warmup_steps or clip_norm=1"
_START_ANEW = f"train in a new --output_dir with {_REMEDY}"
_CHANGE = f"go on from the last checkpoint with {_REMEDY} and --change_settings"


@dataclasses.dataclass(frozen=True)
class TrainSplit:
    """The train split of a run's data, and the plan of its batches.

    Attributes:
        index: the index of the records.
        plan: the plan of the batches.
        largest_shape: (rows, S, T) of the batch that takes the most memory.
    """

    index: RecordIndex
    plan: BatchPlan
    largest_shape: tuple[int, int, int]

    @classmethod
    def open(cls, problem: Problem, config: RunConfig, hparams: HParams) -> Self:
        """Plans the batches of a run.

        Raises:
            UserError: there are no such data, `batch_tokens` is less than the longest
                example, or the data have no word alignments and
                `guided_alignment` needs them.
        """
        index = training_index(Path(config.data_dir), problem)
        if hparams.guided_alignment and not has_links(index):
            raise UserError(
                "hparams: guided_alignment needs word alignments, and the train data "
                f"of '{problem.data_name}' in {config.data_dir} have none; generate "
                "data with `t2t datagen --train_alignment FILE`, or set it to 0"
            )
        plan = batch_plan(
            hparams.bucketing,
            *planned_lengths(index, hparams),
            hparams.batch_tokens,
            config.seed,
            index.swapped,
        )
        memory = memory_of_shape(hparams, config.vocab_sizes)
        return cls(index, plan, plan.largest_shape(memory))


class Trainer:
    """Trains the model of a run directory, from its newest checkpoint if it has one.

    A run that was killed and started again ends with the weights, bit for bit, of one
    that never stopped: initial values, order of the data and dropout are functions of
    the seed and the step, and operations are deterministic.

    Of several processes each runs this loop on its own replicas. The first one, the
    chief, alone evaluates and writes; what ends training in one ends it in all.

    Args:
        run: the run directory.
        strategy: has the replicas.
        options: how the run is watched, kept and ended.
        split: the examples to train on.
    """

    def __init__(
        self,
        run: RunDirectory,
        strategy: tf.distribute.Strategy,
        options: TrainOptions,
        split: TrainSplit,
    ) -> None:
        self._run = run
        self._hparams = run.hparams
        self._problem = run.problem
        self._strategy = strategy
        self._options = options
        self._cluster = Cluster.of(strategy)
        self._asked = -1  # the last interval of steps in which processes asked
        self._micro_batches = run.config.micro_batches(strategy.num_replicas_in_sync)
        seed = run.config.seed
        keras.utils.set_random_seed(seed)
        if tf.config.list_logical_devices("GPU"):
            # On a CPU the operations are deterministic without, and up to 10% faster.
            tf.config.experimental.enable_op_determinism()
        with strategy.scope():
            self.model = run.build_model()
            weights = model_variables(self.model)
            optimizer = make_optimizer(weights, self._hparams)
            self._step = TrainStep(
                self.model, optimizer, strategy, seed, self._micro_batches
            )
        self._variables = weights | self._step.variables
        self._save_interval = options.save_interval(self._hparams.train_steps)
        averages = self._step.ema.averages if self._step.ema else {}

        data_dir, name = Path(run.config.data_dir), self._problem.data_name
        self._index, self._plan = split.index, split.plan
        self._augment: Augmentation | None = None
        if self._hparams.changes_pairs:
            self._augment = Augmentation(
                self._hparams, run.tokenizers, split.index, seed, self._problem.tags
            )
        self._largest_shape = split.largest_shape
        self._validation: Validation | None = None
        has_dev = Manifest.open(data_dir, name).examples.get("dev")
        if has_dev and self._cluster.is_chief:
            translator = Translator(self._problem, self.model, *run.tokenizers)
            self._validation = Validation(
                open_split(run, translator, "dev"),
                weights,
                averages,
                run.checkpoints,
                options,
            )

    def train(self) -> dict[str, Any]:
        """Trains up to `train_steps`, or until something else ends it.

        Returns:
            The last metrics: step, stopped_by (train_steps, patience, max_minutes,
            SIGTERM or SIGINT), loss, target_tokens_per_s, dev_loss, dev_metrics and
            those of `Validation.compare`.

        Raises:
            UserError: the training has diverged.
        """
        stopping = Stopping(self._options.max_minutes)
        done = self._restore()
        steps = range(done, self._hparams.train_steps)
        path = self._run.path if self._cluster.is_chief else None
        time_left = TimeLeft(
            steps,
            self._options,
            self._evaluations_at_end,
            lambda: stopping.seconds_left,
        )
        start = self._saved_time  # when it was restored
        with contextlib.closing(Progress(path, steps, time_left)) as progress:
            metrics = self._train(steps, progress, stopping)
        if self._cluster.is_chief and metrics["step"] > done:
            self._run.record(
                "training",
                first_step=done,
                last_step=metrics["step"],
                minutes=(time.monotonic() - start) / 60,
                devices=devices_text(self._strategy),
                stopped_by=metrics["stopped_by"],
                eval_sentences=self._options.eval_sentences,
            )
        self._cluster.last_barrier()  # the chief evaluates
        if stopping.signal:  # perhaps while it evaluated for the last time
            metrics["stopped_by"] = stopping.signal.name
        return metrics

    def _train(
        self, steps: range, progress: Progress, stopping: Stopping
    ) -> dict[str, Any]:
        options, done = self._options, steps.start
        metrics: dict[str, Any] = {}
        if steps:
            self._begin(progress)
        with stopping, self._run.checkpoints.awaited():
            if done and done % options.eval_every == 0:
                metrics |= self._evaluate(done, progress, stopping)
            batches = self._batches(steps)
            while not (reason := self._reason_to_stop(done, stopping)):
                done = self._run_steps(done, batches, progress)
                if done % options.log_every == 0:
                    metrics |= self._report(done, progress)
                if self._saving_is_due(done):
                    with progress.saving():
                        self._save(done)
                if done % options.eval_every == 0:
                    metrics |= self._evaluate(done, progress, stopping)
            if progress.pending:
                metrics |= self._report(done, progress)
            # A loss scale may still be falling.
            if done > steps.start and not self._step.loss_scale:
                self._stop_if_skipped(min(_MOST_SKIPPED, done - steps.start), done)
            if done != self._saved_step:
                self._save(done)
            if done and reason not in _SIGNALS:
                metrics |= self._evaluate(done, progress, stopping)
                metrics |= self._compare(done, progress, stopping)
                if reason == "train_steps" and not self._validation:
                    self._keep_average(progress)
        return metrics | {"step": done, "stopped_by": reason}

    def _run_steps(
        self,
        first: int,
        batches: Iterator[tuple[tf.Tensor, ...]],
        progress: Progress,
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
        with damage_named(self._index):
            result = self._update(batches, first, rates, progress)
        progress.count(done, result, steps=done - first)
        return done

    def _update(
        self,
        batches: Iterator[tuple[tf.Tensor, ...]],
        step: int,
        rates: Sequence[float],
        progress: Progress,
        is_trial: bool = False,
    ) -> StepResult:
        """Runs a step for each learning rate."""
        if self._options.steps_per_call > 1:
            return self._step.update_from(batches, step, rates, is_trial)
        with progress.waiting():
            batch = next(batches)
        (rate,) = rates
        return self._step.update(batch, step, rate, is_trial)

    @property
    def _evaluations_at_end(self) -> int:
        """Evaluations of the last weights, the average and the moving average."""
        if not self._validation:
            return 0
        return 1 + bool(self._options.average_last) + bool(self._hparams.ema_decay)

    def _keep_average(self, progress: Progress) -> None:
        """Keeps the average of the last checkpoints where there is no dev split."""
        self._run.checkpoints.wait()
        count = min(len(self._run.checkpoints.steps()), self._options.average_last)
        if self._cluster.is_chief and count > 1:
            average = average_run(self._run.path, last=count)
            progress.say(f"the average of {count} checkpoints is kept: {average}")

    def _reason_to_stop(self, done: int, stopping: Stopping) -> str | None:
        """Returns what ends training here, if anything: the same in all processes.

        Several processes ask each other every few steps only, because their hosts wait
        for it.
        """
        interval = done // _STEPS_BETWEEN_STOP_CHECKS
        is_due = interval != self._asked or done % self._options.eval_every == 0
        is_last = done >= self._hparams.train_steps
        if self._cluster.size > 1 and not (is_due or is_last):
            return None
        self._asked = interval
        reason = stopping.reason
        if done >= self._hparams.train_steps and not stopping.signal:
            reason = "train_steps"
        elif self._validation and self._validation.lost_patience:
            reason = reason or "patience"
        return self._cluster.all_reduce_first(reason, _REASONS)

    def _batches(self, steps: range) -> Iterator[tuple[tf.Tensor, ...]]:
        """Yields the distributed batch of every step."""
        parts = training_batches(
            self._index,
            self._plan,
            steps,
            self._strategy.num_replicas_in_sync,
            micro_batches=self._micro_batches,
            own=own_replicas(self._strategy),
            aligned=self._hparams.guided_alignment > 0,
            augment=self._augment,
        )
        return iter(distribute(self._strategy, parts))

    def _begin(self, progress: Progress) -> None:
        """Says what will be trained, and runs the largest batch once.

        So a batch that does not fit into memory fails at once.
        """
        progress.say(
            f"{self.model.count_params():,} parameters, "
            f"{devices_text(self._strategy)}, {len(self._plan):,} batches an epoch "
            f"with {self._plan.padding_share:.1%} padding"
        )
        self._refuse_small_disk(self._saved_step)
        shape = self._largest_shape
        batches = synthetic_batches(
            self._strategy,
            shape,
            self._micro_batches,
            aligned=self._hparams.guided_alignment > 0,
        )
        tensors = snapshot(self._variables, 0)  # held, as while they are written
        try:
            self._update(iter(batches), 0, [0.0], progress, is_trial=True)
        except tf.errors.OpError as error:
            if not is_out_of_memory(error):
                raise
            raise does_not_fit(self._hparams.batch_tokens, shape) from None
        del tensors

    def _refuse_small_disk(self, done: int) -> None:
        """Refuses a training whose checkpoints would fill the disk before its end.

        Raises:
            UserError: less is free than they take.
        """
        options, path = self._options, self._run.path
        saves = -(-(self._hparams.train_steps - done) // self._save_interval)
        if options.save_minutes:
            saves = options.keep
        kept = len(self._run.checkpoints.steps())
        # One more is there while it is written, and the best and the average, which
        # have the weights alone.
        more = min(kept + saves, options.keep) - kept + 1
        need = more * _bytes(self._variables) + 2 * _bytes(model_variables(self.model))
        free = shutil.disk_usage(path).free
        if need > free:
            raise UserError(
                f"--output_dir: the checkpoints take {need / 1e9:.3g} GB more, and "
                f"{free / 1e9:.3g} GB are free in {path}; free disk space, or keep "
                "fewer of them with --keep"
            )

    def _restore(self) -> int:
        """Restores the newest checkpoint, if any; returns the number of steps done.

        Without one, the weights may come from another run.
        """
        steps = self._run.checkpoints.steps()
        done = 0
        if steps:
            done = self._restore_newest(steps)
        elif self._run.config.init_from:
            taken = initialise_from(
                self._run.config.init_from, self.model, self._run.tokenizers
            )
            if self._cluster.is_chief:
                print(taken, file=sys.stderr)
        if done != self._cluster.broadcast(done):
            raise UserError(
                f"--output_dir: {self._run.path} is another directory here than where "
                "the chief runs; all processes need one that they share"
            )
        if self._validation:
            self._validation.resume(done)
        self._saved_step, self._saved_time = done, time.monotonic()
        return done

    def _restore_newest(self, steps: list[int]) -> int:
        """Restores the newest checkpoint that can be read, and returns its step.

        Raises:
            DamagedCheckpoint: none of them can be read.
        """
        *earlier, newest = steps
        try:
            checkpoint = Checkpoint(self._run.checkpoints.path(newest))
            checkpoint.restore(self._variables, self._step.counters)
        except DamagedCheckpoint as error:
            if not earlier:
                raise
            if self._cluster.is_chief:
                print(f"{error}; going on from step {earlier[-1]}", file=sys.stderr)
            return self._restore_newest(earlier)
        return checkpoint.step

    def _saving_is_due(self, done: int) -> bool:
        if self._options.save_minutes:
            minutes = (time.monotonic() - self._saved_time) / 60
            return minutes >= self._options.save_minutes
        return done % self._save_interval == 0

    def _save(self, step: int) -> None:
        if not self._cluster.is_chief:
            return
        self._stop_if_skipped(_MOST_SKIPPED, step)
        variables = self._variables | self._step.counters
        self._run.checkpoints.start_saving(step, variables, keep=self._options.keep)
        self._saved_step, self._saved_time = step, time.monotonic()

    def _report(self, done: int, progress: Progress) -> dict[str, float]:
        """Reports the training since the last report.

        Raises:
            UserError: it has diverged, or the last checkpoint could not be written.
        """
        self._run.checkpoints.raise_error()
        rate, epoch = learning_rate(self._hparams, done), done / len(self._plan)
        metrics = progress.report_training(
            done, {"learning_rate": rate, "epoch": epoch}
        )
        self._stop_if_skipped(_MOST_SKIPPED, done)
        self._stop_if_diverged(metrics["loss"], done)
        return metrics

    def _stop_if_diverged(self, loss: float, done: int) -> None:
        """Stops at a loss far above log V.

        Fresh weights and those of other data give about log V, whatever the model, and
        a training that learns stays below.

        Args:
            loss: the mean over all target tokens since the last report.
            done: the number of updates done.
        """
        guessing = math.log(self._run.tokenizers[1].vocab_size)
        if loss > _DIVERGED * guessing:
            raise UserError(
                f"step {done}: the training has diverged: its loss, {loss:.4g} for "
                f"each target token, is far above that of guessing, {guessing:.4g}; "
                f"{_START_ANEW}"
            )

    def _evaluate(
        self, step: int, progress: Progress, stopping: Stopping
    ) -> dict[str, Any]:
        """Evaluates on dev, unless there is none or a signal has come or comes."""
        with progress.paused(), stopping.interruptible():
            if self._validation and not stopping.signal:
                return self._validation.evaluate(step, progress)
        return {}

    def _compare(
        self, step: int, progress: Progress, stopping: Stopping
    ) -> dict[str, Any]:
        """Compares the best checkpoint with averages on dev, likewise."""
        with stopping.interruptible():
            if self._validation and not stopping.signal:
                return self._validation.compare(step, progress)
        return {}

    def _stop_if_skipped(self, limit: int, done: int) -> None:
        """Stops if the last updates have all been skipped.

        Until then nothing is lost: a skipped update leaves everything as it was.
        """
        in_a_row = int(self._step.skipped_in_a_row.read_value())
        if in_a_row and in_a_row >= limit:
            raise UserError(
                f"step {done}: the loss or its gradient was not finite in the last "
                f"{in_a_row} updates, which were skipped; {_CHANGE}"
            )


def _bytes(variables: Mapping[str, tf.Variable]) -> int:
    """Returns what the variables take in a checkpoint."""
    return sum(v.shape.num_elements() * v.dtype.size for v in variables.values())
