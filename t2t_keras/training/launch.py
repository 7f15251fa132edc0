"""A training from the names of its parts: what `t2t train` calls, and Python may."""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import keras
import tensorflow as tf

from t2t_keras import registry
from t2t_keras.arguments import checked
from t2t_keras.data.console import say
from t2t_keras.data.training_data import TrainingData
from t2t_keras.entry_points import hparams_remarks
from t2t_keras.errors import UserError, require_local
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.hparam import HParams
from t2t_keras.model.backend import require_tensorflow
from t2t_keras.options import split_pairs
from t2t_keras.run.checkpoint import remove_incomplete
from t2t_keras.run.config import RunConfig, config_for, first_hparams, is_run
from t2t_keras.run.directory import RunDirectory, training_lock
from t2t_keras.training.fine_tune import find_weights
from t2t_keras.training.options import TrainOptions
from t2t_keras.training.process_group import ProcessGroup
from t2t_keras.training.strategy import make_strategy
from t2t_keras.training.trainer import Trainer
from t2t_keras.type_hints import Limits, Positive, Seed
from t2t_keras.usr_dir import load_usr_dir

_MOST_SIMULATED = 256  # replicas on a CPU
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a training has ended; a metric is None where there was nothing to measure.

    Attributes:
        step: the number of updates done.
        stopped_by: "train_steps", "patience", "max_minutes", "callback", "SIGTERM",
            "SIGINT" or "SIGHUP".
        loss: for each target token, with label smoothing (so it is above `dev_loss`),
            over the steps that were reported last.
        target_tokens_per_s: over the same steps.
        dev_loss: at the last evaluation, without label smoothing.
        dev_metrics: at the last evaluation: the problem's metrics, by name.
        dev_best: the metrics of the best evaluation, with its "step".
        dev_average: the metrics of the average of the last checkpoints.
        dev_ema: the metrics of the moving average of the weights.
        process_group: the processes that have trained together, if there were several
            (TF_CONFIG). All have the same `step` and `stopped_by`.
    """

    step: int
    stopped_by: str
    loss: float | None = None
    target_tokens_per_s: float | None = None
    dev_loss: float | None = None
    dev_metrics: dict[str, float] | None = None
    dev_best: dict[str, float] | None = None
    dev_average: dict[str, float] | None = None
    dev_ema: dict[str, float] | None = None
    # Keeps the strategy alive; destroying it blocks.
    process_group: ProcessGroup = dataclasses.field(
        default_factory=ProcessGroup, repr=False
    )

    @property
    def is_chief(self) -> bool:
        """Whether this process has written the run; of several only one has."""
        return self.process_group.is_chief

    def to_dict(self) -> dict[str, Any]:
        """Returns the metrics by name: what `t2t train --json` prints."""
        names = [field.name for field in dataclasses.fields(self)]
        return {name: getattr(self, name) for name in names if name != "process_group"}


@checked
def train(
    problem: str,
    hparams_set: str | None = None,
    *,
    data_dir: str | Path,
    output_dir: str | Path,
    hparams: str | Mapping[str, Any] = "",
    train_steps: Positive | None = None,
    seed: Seed = 0,
    init_from: str | Path | None = None,
    accumulate: Positive = 1,
    simulate_devices: Annotated[int, Limits(ge=0, le=_MOST_SIMULATED)] = 0,
    usr_dir: str | Path | None = None,
    change_settings: bool = False,
    options: TrainOptions | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> TrainResult:
    """Trains a model, or resumes its training, on all GPUs (or on the CPU).

        t2t_keras.train(
            "translate_ende_toy", "tiny", data_dir="data", output_dir="runs/toy"
        )

    Progress is on standard error and in the run directory. SIGTERM, SIGHUP and Ctrl-C
    save and end the training: the function returns, and the same call resumes it.
    Keras' random seed is set, and operations on GPUs become deterministic, for the
    whole process.

    Args:
        problem: a registered name.
        hparams_set: a registered name; None: with `init_from` the hyper-parameters of
            that run.
        data_dir: with data of the problem, which `t2t datagen` wrote.
        output_dir: the run directory: a new one, or one whose training is resumed.
        hparams: changes to the set, as "dropout=0.2,num_layers=4" or by name.
        train_steps: total number of steps; None: the hparam set's.
        seed: the seed of the initial weights, the order of the data, and dropout.
        init_from: fine-tuning: a run directory, or a checkpoint in one, to take the
            first weights from.
        accumulate: number of micro-batches into which each replica divides its part
            of a batch.
        simulate_devices: number of replicas on the CPU, for tests; 0: one on every GPU.
        usr_dir: a folder with problems, models and hparam sets, imported first.
        change_settings: whether a run is resumed with other values of hyper-parameters
            such as `learning_rate`, `clip_norm` or `dropout`: those in
            `hparam.CHANGEABLE_FIELDS`.
        options: how the run is watched, saved and ended; None: `TrainOptions()`.
        callbacks: Keras callbacks, called as `fit(steps_per_epoch=eval_every)` does,
            but for batches at each report only. The logs are the records of
            `metrics.jsonl`, those of dev with the prefix "val_" at the end of an epoch.

    Returns:
        The last metrics, and what ended the training.

    Raises:
        UserError: a name, a value or the data are not there or do not go together; the
            run directory holds a run with other settings, or another process trains
            in it; the memory or the disk is too small; the training has diverged; a
            callback raised an error.
    """
    require_tensorflow()
    for name, path in ("data_dir", data_dir), ("output_dir", output_dir):
        require_local(name, path)
    if usr_dir is not None:
        load_usr_dir(usr_dir)
    task = registry.problem(problem)
    start = None if init_from is None else find_weights(init_from)[0]
    chosen = first_hparams(hparams_set, init_from)
    if hparams_set is None:
        assert start is not None  # otherwise `first_hparams` has raised
        hparams_set = start.config.hparams_set
        usr_dir = usr_dir or start.config.usr_dir
    if isinstance(hparams, str):
        changes = list(split_pairs(hparams, "--hparams: "))
        chosen = chosen.parse(hparams)
    else:
        changes = list(hparams)
        chosen = chosen.override(**hparams)
    if train_steps is not None:
        chosen = chosen.override(train_steps=train_steps)
    if Path(output_dir).resolve() == Path(data_dir).resolve():
        raise UserError(
            f"--output_dir: {output_dir} is the --data_dir; give a directory for the "
            "run"
        )
    options = options or TrainOptions()
    tokens = options.bleu_tokenize
    config = config_for(
        task,
        hparams_set,
        data_dir,
        seed,
        usr_dir,
        init_from,
        _recorded_tokens(output_dir) if tokens == "auto" else tokens,
    )
    with _disk_errors(output_dir), _alone(output_dir):
        strategy = make_strategy(simulate_devices)
        parts = strategy.num_replicas_in_sync * accumulate
        config = dataclasses.replace(config, batch_parts=parts)
        # Everything is validated before the directory becomes a run.
        RunDirectory.refuse_other_settings(output_dir, config, chosen, change_settings)
        tokenizers = config.tokenizers(Path(data_dir))
        data = TrainingData.open(task, data_dir, chosen, tokenizers, seed)
        group = ProcessGroup.from_strategy(strategy)
        if group.is_chief:
            for remark in hparams_remarks(hparams_set, changes):
                say(remark)
        with group.watched():
            run = _run_directory(output_dir, config, chosen, group, change_settings)
            trainer = Trainer(run, strategy, options, data, callbacks)
            metrics = trainer.train()
    names = {field.name for field in dataclasses.fields(TrainResult)}
    known = {name: value for name, value in metrics.items() if name in names}
    return TrainResult(**known, process_group=group)


def _recorded_tokens(output_dir: str | Path) -> BleuTokens | None:
    """Returns the tokenization of BLEU that a run was given; None: there is none."""
    if not is_run(output_dir):
        return None
    return RunConfig.read(Path(output_dir)).bleu_tokenize


def _alone(output_dir: str | Path) -> contextlib.AbstractContextManager[None]:
    """Keeps other trainings out of the directory; only the chief holds the lock."""
    if ProcessGroup.from_environment().is_chief:
        return training_lock(output_dir)
    return contextlib.nullcontext()


@contextlib.contextmanager
def _disk_errors(output_dir: str | Path) -> Iterator[None]:
    """Explains any error that the system raises when no space is left.

    Raises:
        UserError: there is no space left.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        # TensorFlow's errors have the system's text, but not its error number.
        reasons = [os.strerror(number) for number in _NO_SPACE]
        reason = next((text for text in reasons if text in str(error)), None)
        if reason is None:
            raise
        raise UserError(
            f"--output_dir: cannot write to {output_dir}: {reason}; free disk space "
            "and run the same command again: it resumes from the last checkpoint"
        ) from error


def _run_directory(
    path: str | Path,
    config: RunConfig,
    hparams: HParams,
    group: ProcessGroup,
    change_settings: bool,
) -> RunDirectory:
    """Makes or opens the run directory; of several processes only the chief writes."""
    if group.is_chief:
        run = RunDirectory.create(path, config, hparams, change_settings)
        remove_incomplete(run.path, ["model.ckpt-", "best.ckpt-"])
        group.barrier()
        return run
    group.barrier()
    RunDirectory.refuse_other_settings(path, config, hparams, change_settings, True)
    return RunDirectory(path)
