"""The loop of a training: restore, steps, reports, checkpoints, end.

Features plug into it as the hooks that `features` lists.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from t2t_keras.console import busy, folded, say, short_number
from t2t_keras.data.pipeline import Batch, damage_named
from t2t_keras.data.training_data import TrainingData
from t2t_keras.devices import compiled_programs, gpu_details, program_failures_named
from t2t_keras.errors import UserError, quantity
from t2t_keras.hparam import HParams
from t2t_keras.processes import SIGNALS
from t2t_keras.run.checkpoint import model_variables, snapshot
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.history import record_event
from t2t_keras.training.features import chief_hooks, initial_hooks
from t2t_keras.training.hooks import STOP_REASONS, Hook, HookPlugin
from t2t_keras.training.interval import TimeLeft
from t2t_keras.training.optimizer import (
    learning_rate,
    make_optimizer,
    require_unchanged,
)
from t2t_keras.training.reporting import Reporter, Screen
from t2t_keras.training.result import evaluation_lines, recorded_results, results
from t2t_keras.training.sanity_checks import require_packing, try_largest_batch
from t2t_keras.training.settings import TrainOptions
from t2t_keras.training.step import StepResult, TrainStep
from t2t_keras.training.stopping import Stopping
from t2t_keras.training.strategy import (
    ProcessGroup,
    devices_text,
    distribute,
    local_replicas,
    on_gpus,
)

# Each skipped update halves the loss scale of float16.
MAX_SKIPPED_IN_A_ROW = 50

_DIVERGED = 10.0  # times the loss of the uniform distribution
_REMEDY = "a lower learning_rate, a longer warmup_steps or clip_norm=1"


def refuse_divergence(step: int, loss: float, vocab_size: int) -> None:
    """Refuses a loss far above that of guessing.

    Fresh weights have a loss of about log V in any model, as do weights that were
    trained on other data. A training that learns stays below it.

    Args:
        step: the number of updates so far.
        loss: for each target token.
        vocab_size: V, of the targets.

    Raises:
        UserError: the training has diverged.
    """
    guessing = math.log(vocab_size)
    if loss > _DIVERGED * guessing:
        raise UserError(
            f"step {step}: the training has diverged: its loss, {short_number(loss)} "
            "for each target token, is far above a loss by guessing, "
            f"{short_number(guessing)}; train in a new --output_dir with {_REMEDY}"
        )


_WITH_BFLOAT16 = (8, 0)  # compute capability of the A100


def dtype_advice(strategy: tf.distribute.Strategy, hparams: HParams) -> str:
    """Returns a sentence that recommends bfloat16 where it is faster, otherwise ""."""
    if hparams.compute_dtype != "float32" or not on_gpus(strategy):
        return ""
    capabilities = [gpu.get("compute_capability", (0, 0)) for gpu in gpu_details()]
    if min(capabilities) < _WITH_BFLOAT16:
        return ""
    return (
        "computing in float32; on these GPUs, --hparams compute_dtype=bfloat16 is "
        "faster"
    )


def compilation_notice(hparams: HParams) -> str:
    """Returns a sentence about the time that XLA needs, or "" without XLA."""
    if hparams.jit_compile is not True:
        return ""
    # The times are those of the base model on an H100.
    per_shape = "for every shape of a batch" if hparams.bucketing == "static" else ""
    folder = compiled_programs()
    per_start = f"once, and kept in {folder}" if folder else "at every start"
    when = ", ".join(filter(None, [per_shape, per_start]))
    return f"XLA compiles the update, which may take a minute: {when}"


_SIGNAL_NAMES = tuple(signal.name for signal in SIGNALS)
_STEPS_BETWEEN_STOP_CHECKS = 10


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
        plugins: make further hooks, which the chief calls after all others.
    """

    def __init__(
        self,
        run: RunDirectory,
        strategy: tf.distribute.Strategy,
        options: TrainOptions,
        data: TrainingData,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        plugins: Sequence[HookPlugin] = (),
    ) -> None:
        self._run = run
        self._hparams = run.hparams
        self._strategy = strategy
        self._options = options
        self._data = data
        self._group = ProcessGroup.from_strategy(strategy)
        # The last interval of steps in which the processes asked each other to stop.
        self._checked_interval = -1
        # Whether the results were recorded by an earlier start.
        self._is_recorded = False
        self._micro_batches = run.config.micro_batches(strategy.num_replicas_in_sync)
        seed = run.config.seed
        keras.utils.set_random_seed(seed)
        if tf.config.list_logical_devices("GPU"):
            # On a CPU, operations are deterministic anyway; this would cost up to 10%.
            tf.config.experimental.enable_op_determinism()
        with strategy.scope():
            self.model = run.build_model()
            if self._hparams.bucketing == "packed":
                require_packing(self.model)
            self._weights = model_variables(self.model)
            trainable = model_variables(self.model, trainable=True)
            optimizer = make_optimizer(trainable, self._hparams)
            self._step = TrainStep(
                self.model, optimizer, strategy, seed, self._micro_batches
            )
        self._variables = self._weights | self._step.variables
        self._save_interval = options.save_interval(self._hparams.train_steps)
        self._hooks: list[Hook] = initial_hooks(run, self.model)
        if self._group.is_chief:
            self._hooks += chief_hooks(
                run, self.model, optimizer, options, callbacks, plugins
            )

    def train(self) -> dict[str, object]:
        """Trains up to `train_steps`, or until something else ends it.

        Returns:
            The last metrics: the fields of `TrainResult`, and what
            `Reporter.report_training` returns.

        Raises:
            UserError: the training has diverged.
        """
        self._stopping = Stopping(self._options.max_minutes)
        start_step = self._restore()
        start_time = self._saved_time  # set when the checkpoint was restored
        steps = range(start_step, self._hparams.train_steps)
        self._reporter = self._make_reporter(steps)
        with contextlib.closing(self._reporter):
            metrics, step, reason = self._train(steps)
            # A signal cuts the evaluations at the end short.
            is_complete = not self._stopping.signal
            # A process that was killed in them has recorded nothing.
            has_new_results = step and is_complete and not self._is_recorded
            # Hooks that are closed may read it.
            if self._group.is_chief and (step > start_step or has_new_results):
                self._run.checkpoints.require_place()
                record_event(
                    self._run.path,
                    "training",
                    first_step=start_step,
                    last_step=step,
                    minutes=(time.monotonic() - start_time) / 60,
                    devices=devices_text(self._strategy),
                    stopped_by=reason,
                    eval_sentences=self._options.eval_sentences,
                    **(results(metrics, self._options) if is_complete else {}),
                )
        # The other processes wait here while the chief evaluates.
        self._group.last_barrier()
        # A signal may have come during the last evaluation.
        if self._stopping.signal:
            reason = self._stopping.signal.name
        return metrics | {"step": step, "stopped_by": reason}

    def _restore(self) -> int:
        """Restores the newest checkpoint, if any; returns the number of steps done."""

        def say_in_chief(message: str) -> None:
            if self._group.is_chief:
                say(message)

        step = self._run.checkpoints.restore_newest(self._variables, say_in_chief)
        if not self._run.checkpoints.steps():
            for hook in self._hooks:
                if message := hook.on_fresh_weights():
                    say_in_chief(message)
        if step != self._group.broadcast(step):
            raise UserError(
                f"--output_dir: {self._run.path} is another directory here than where "
                "the chief runs; all processes need one that they share"
            )
        if self._group.is_chief:
            self._run.checkpoints.set_aside(step)
        train_steps = self._hparams.train_steps
        if step >= train_steps:
            say_in_chief(f"all {quantity(train_steps, 'steps')} are done")
        elif step:
            say_in_chief(f"resuming from step {step} of {train_steps}")
        for hook in self._hooks:
            hook.on_restore(step)
        self._set_saved(step)
        # A training that was stopped early has saved a checkpoint that an uninterrupted
        # one does not have. The next checkpoint replaces it, so that both average the
        # same steps.
        is_scheduled = self._options.save_minutes or (
            step % self._save_interval == 0 and not self._has_doubtful_weights(step)
        )
        self._replaced_step = None if is_scheduled else step
        return step

    def _make_reporter(self, steps: range) -> Reporter:
        evaluations = sum(hook.evaluations_at_end for hook in self._hooks)
        time_left = TimeLeft(
            steps, self._options, evaluations, lambda: self._stopping.seconds_left
        )
        screen = Screen(time_left) if self._group.is_chief else None
        return Reporter(time_left, self._hooks, screen)

    def _train(self, steps: range) -> tuple[dict[str, object], int, str]:
        """Runs the steps; returns the last metrics, the last step and its reason."""
        options = self._options
        step = steps.start
        metrics: dict[str, object] = {}
        if steps:
            self._begin()
        with self._stopping, self._run.checkpoints.awaited():
            if step and step % options.eval_every == 0:
                metrics |= self._evaluate(step)
            batches = self._batches(steps)
            while not (reason := self._reason_to_stop(step)):
                step = self._run_steps(step, batches)
                if step % options.log_every == 0:
                    metrics |= self._report(step)
                if self._is_saving_due(step):
                    with self._reporter.saving():
                        self._save(step)
                if step % options.eval_every == 0:
                    metrics |= self._evaluate(step)
            if self._reporter.has_unreported:
                metrics |= self._report(step)
            is_end = reason not in _SIGNAL_NAMES
            # A loss scale may still be falling, which skips updates.
            if is_end and step > steps.start and not self._step.loss_scale:
                self._refuse_skipped_updates(step, self._doubtful_count(step))
            if step != self._saved_step:
                self._save(step, is_end)
            if step and is_end:
                metrics |= self._results(step, reason, has_begun=step > steps.start)
        if steps:
            for hook in self._hooks:
                hook.on_train_end()
        return metrics, step, reason

    def _results(self, step: int, reason: str, has_begun: bool) -> dict[str, object]:
        """Evaluates the end of the training, unless an earlier start has done that."""
        if self._group.is_chief and not has_begun:
            recorded = recorded_results(self._run.path, step, reason, self._options)
            if recorded is not None:
                self._is_recorded = True
                self._reporter.say("the results are those of the end of the training")
                for line in evaluation_lines(step, recorded):
                    self._reporter.say(line)
                return recorded
        metrics = self._evaluate(step, at_end=True)
        if reason == "train_steps":
            for hook in self._hooks:
                hook.on_last_step(step, self._reporter)
        return metrics

    def _begin(self) -> None:
        """Says what will be trained, and tries what may fail: disk and memory."""
        facts = (
            f"{self.model.count_params():,} parameters",
            devices_text(self._strategy),
            self._data.plan.summary,
        )
        self._reporter.say(folded(facts, ", ", line_end=","))
        keep = self._options.keep
        steps_left = self._hparams.train_steps - self._saved_step
        saves = -(-steps_left // self._save_interval)
        if self._options.save_minutes:
            saves = keep
        self._run.checkpoints.require_space(self._variables, self._weights, saves, keep)
        for message in (
            dtype_advice(self._strategy, self._hparams),
            compilation_notice(self._hparams),
        ):
            if message:
                self._reporter.say(message)
        # As much memory is taken as while a checkpoint is written.
        copies = snapshot(self._variables, 0)
        with program_failures_named(), busy("building the graph"):
            message = try_largest_batch(
                lambda batches: self._call_step(batches, 0, [0.0], dry_run=True),
                self._strategy,
                self._data.largest_shape,
                self._hparams.batch_tokens,
                self._data.signature,
                self._micro_batches,
            )
        require_unchanged(self._variables, copies, self._hparams)
        del copies
        if message:
            self._reporter.say(message)
        for hook in self._hooks:
            if note := hook.on_train_begin():
                self._reporter.say(note)

    def _batches(self, steps: range) -> Iterator[Batch]:
        """Yields the distributed batch of every step."""
        parts = self._data.batches(
            steps,
            self._strategy.num_replicas_in_sync,
            self._micro_batches,
            local_replicas(self._strategy),
        )
        return iter(distribute(self._strategy, parts))

    def _run_steps(self, start_step: int, batches: Iterator[Batch]) -> int:
        """Runs the steps of one call; returns the number of updates so far.

        A call ends where something else is due.
        """
        options = self._options
        step = min(start_step + options.steps_per_call, self._hparams.train_steps)
        for interval in (options.log_every, options.eval_every, self._save_interval):
            step = min(step, start_step + interval - start_step % interval)
        rates = [
            learning_rate(self._hparams, n) for n in range(start_step + 1, step + 1)
        ]
        with damage_named(self._data.index):
            result = self._call_step(batches, start_step, rates)
        self._reporter.count(step, result, steps=step - start_step)
        return step

    def _call_step(
        self,
        batches: Iterator[Batch],
        step: int,
        rates: Sequence[float],
        dry_run: bool = False,
    ) -> StepResult:
        """Runs a step for each learning rate, in one call of TensorFlow."""
        if self._options.steps_per_call > 1:
            return self._step.update_from(batches, step, rates, dry_run)
        with self._reporter.waiting():
            batch = next(batches)
        (rate,) = rates
        return self._step.update(batch, step, rate, dry_run)

    def _report(self, step: int) -> dict[str, float]:
        """Reports the training since the last report.

        Raises:
            UserError: it has diverged, or the last checkpoint could not be written.
        """
        self._run.checkpoints.raise_error()
        epoch = step / len(self._data.plan)
        rate = learning_rate(self._hparams, step)
        metrics = self._reporter.report_training(
            step, {"learning_rate": rate, "epoch": epoch}
        )
        self._refuse_skipped_updates(step, MAX_SKIPPED_IN_A_ROW)
        refuse_divergence(step, metrics["loss"], self._run.tokenizers[1].vocab_size)
        return metrics

    def _is_saving_due(self, step: int) -> bool:
        if self._options.save_minutes:
            minutes = (time.monotonic() - self._saved_time) / 60
            return minutes >= self._options.save_minutes
        return step % self._save_interval == 0

    def _save(self, step: int, is_end: bool = False) -> None:
        """Starts to save a checkpoint, unless its weights are doubtful.

        At the end it is saved anyway, for the evaluations.
        """
        if not self._group.is_chief:
            return
        self._refuse_skipped_updates(step, MAX_SKIPPED_IN_A_ROW)
        # It would push out a good one.
        if self._has_doubtful_weights(step) and not is_end:
            return
        self._run.checkpoints.start_saving(
            step, self._variables, self._options.keep, self._replaced_step
        )
        self._replaced_step = None
        self._set_saved(step)

    def _set_saved(self, step: int) -> None:
        self._saved_step = step
        self._saved_time = time.monotonic()

    def _evaluate(self, step: int, at_end: bool = False) -> dict[str, object]:
        """Lets the hooks evaluate, unless a signal has come; one cuts it short."""
        metrics: dict[str, object] = {}
        with self._reporter.paused(), self._stopping.interruptible():
            if self._stopping.signal:
                return metrics
            try:
                for hook in self._hooks:
                    metrics |= hook.evaluate(step, self._reporter)
            except Exception:
                # A metric or a callback has failed, not the training: after a
                # correction it resumes here, with this evaluation.
                if step != self._saved_step:
                    self._save(step)
                raise
            if at_end:
                for hook in self._hooks:
                    metrics |= hook.evaluate_at_end(step, self._reporter)
        return metrics

    def _reason_to_stop(self, step: int) -> str | None:
        """Returns what ends training here, if anything: the same in all processes.

        Several processes ask each other every few steps only, because their hosts wait
        for it.
        """
        interval = step // _STEPS_BETWEEN_STOP_CHECKS
        is_new_interval = interval != self._checked_interval
        is_due = is_new_interval or step % self._options.eval_every == 0
        is_last = step >= self._hparams.train_steps
        if self._group.size > 1 and not (is_due or is_last):
            return None
        self._checked_interval = interval
        reason = self._stopping.reason
        if is_last and not self._stopping.signal:
            reason = "train_steps"
        else:
            for hook in self._hooks:
                reason = reason or hook.stop_reason()
        return self._group.all_reduce_first(reason, STOP_REASONS)

    def _has_doubtful_weights(self, step: int) -> bool:
        return self._skipped_in_a_row() >= self._doubtful_count(step)

    def _doubtful_count(self, step: int) -> int:
        """Returns how many skipped updates in a row make the weights doubtful.

        It is more than half of an interval between checkpoints, so that it is the same
        wherever the training was interrupted.
        """
        interval = min(step, self._save_interval)
        return min(interval // 2 + 1, MAX_SKIPPED_IN_A_ROW)

    def _skipped_in_a_row(self) -> int:
        return int(self._step.skipped_in_a_row.read_value())

    def _refuse_skipped_updates(self, step: int, limit: int) -> None:
        """Raises UserError if the last updates have all been skipped.

        A checkpoint is good if an update from its weights had a finite loss. A skipped
        update leaves the weights as they are, so these are the checkpoints before the
        last update that was not skipped. The later ones are set aside.

        Raises:
            UserError: `limit` or more in a row have been skipped.
        """
        skipped = self._skipped_in_a_row()
        if skipped < limit:
            return
        last_good = step - skipped - 1
        checkpoints = self._run.checkpoints
        checkpoints.wait()
        saved_steps = checkpoints.steps()
        if self._group.is_chief:
            checkpoints.set_aside(last_good)
        good = [saved for saved in saved_steps if saved <= last_good]
        bad = saved_steps[len(good) :]
        if good:
            advice = (
                f"the checkpoint of step {good[-1]} is good: continue from there with "
                f"{_REMEDY} and --change_settings"
            )
        else:
            advice = (
                "there is no good checkpoint: start again in a new --output_dir with "
                f"{_REMEDY}"
            )
        if bad:
            names = ", ".join(f"damaged.model.ckpt-{saved}" for saved in bad)
            advice += f" (weights that have only led to such losses are now {names})"
        raise UserError(
            f"step {step}: the loss or its gradient was not finite in the last "
            f"{quantity(skipped, 'updates')}, each of which was skipped; {advice}"
        )
