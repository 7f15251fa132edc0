"""The function `train`: checks settings, opens the run directory, and trains.

`t2t train` calls it, and Python may. `Trainer` has the loop.
"""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import keras
import tensorflow as tf
from annotated_types import Interval

from t2t_keras import registry
from t2t_keras.checking import Positive, Seed, checked
from t2t_keras.console import say
from t2t_keras.data.training_data import TrainingData
from t2t_keras.entry_points import hparams_remarks
from t2t_keras.errors import UserError, require_local, require_readable_name
from t2t_keras.files.atomic import Lock
from t2t_keras.hparam import HParams
from t2t_keras.model.backend import require_tensorflow
from t2t_keras.options import split_pairs
from t2t_keras.run.checkpoint import CheckpointDirectory, remove_incomplete
from t2t_keras.run.config import RunConfig, is_run
from t2t_keras.run.directory import RunDirectory, training_lock
from t2t_keras.training.fine_tune import find_weights
from t2t_keras.training.hooks import HookPlugin, hook_plugins
from t2t_keras.training.result import TrainResult
from t2t_keras.training.settings import run_settings
from t2t_keras.training.strategy import ProcessGroup, make_strategy, on_gpus
from t2t_keras.training.trainer import Trainer


def resolve_auto(hparams: HParams, output_dir: str | Path, has_gpus: bool) -> HParams:
    """Returns the hyper-parameters with a value in place of every "auto".

    A run that has a checkpoint keeps its values.
    """
    if "auto" not in (hparams.bucketing, hparams.jit_compile):
        return hparams
    recorded = None
    if is_run(output_dir) and CheckpointDirectory(Path(output_dir)).steps():
        recorded = RunDirectory(output_dir).hparams
    if hparams.bucketing == "auto":
        if recorded is not None:
            # An imported run has no value.
            bucketing = "exact" if recorded.bucketing == "auto" else recorded.bucketing
        elif has_gpus or hparams.jit_compile is True:
            bucketing = "packed"
        else:
            bucketing = "exact"
        hparams = hparams.override(bucketing=bucketing)
    if hparams.jit_compile == "auto":
        if recorded is not None:
            is_compiled = recorded.jit_compile is True
        else:
            is_compiled = has_gpus and hparams.bucketing == "packed"
        hparams = hparams.override(jit_compile=is_compiled)
    return hparams


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def disk_errors(output_dir: str | Path) -> Iterator[None]:
    """Explains any error that the system raises when no space is left.

    Raises:
        UserError: there is no space left.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        # TensorFlow's errors have the system's text, but not its error number.
        reasons = [os.strerror(code) for code in _NO_SPACE]
        reason = next((text for text in reasons if text in str(error)), None)
        if reason is None:
            raise
        raise UserError(
            f"--output_dir: cannot write to {output_dir}: {reason}; free disk space "
            "and run the same command again: it resumes from the last checkpoint"
        ) from error


_MAX_SIMULATED = 256  # replicas on a CPU


@checked
def train(
    problem: str | None = None,
    hparams_set: str | None = None,
    *,
    output_dir: str | Path,
    data_dir: str | Path | None = None,
    hparams: str | Mapping[str, object] = "",
    train_steps: Positive | None = None,
    seed: Seed | None = None,
    init_from: str | Path | None = None,
    accumulate: Positive | None = None,
    simulate_devices: Annotated[int, Interval(ge=0, le=_MAX_SIMULATED)] = 0,
    usr_dir: str | Path | None = None,
    change_settings: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    hooks: Sequence[str | HookPlugin] = (),
    **options: Any,
) -> TrainResult:
    """Trains a model, or resumes its training, for `t2t_keras.train` and `t2t train`.

    `t2t_keras.train` documents the arguments; `options` are fields of `TrainOptions`.

    Returns:
        The last metrics, and what ended the training.

    Raises:
        UserError: see `t2t_keras.train`.
    """
    require_tensorflow()
    require_local("output_dir", output_dir)
    require_readable_name("output_dir", output_dir)
    if data_dir is not None:
        _check_data_dir(data_dir, output_dir)
    config, base, watching = run_settings(
        output_dir,
        problem,
        hparams_set,
        usr_dir=usr_dir,
        data_dir=data_dir,
        seed=seed,
        init_from=init_from,
        options=options,
    )
    data_dir = config.data_dir if data_dir is None else data_dir
    task = registry.problem(config.problem)
    if init_from is not None:
        find_weights(init_from)
    resolved, changed_names = _with_changes(base, hparams, train_steps)
    plugins = hook_plugins(hooks)
    with disk_errors(output_dir), _exclusive(output_dir) as lock:
        strategy = make_strategy(simulate_devices)
        replicas = strategy.num_replicas_in_sync
        if accumulate is None:
            accumulate = 1
            if config.batch_parts is not None:
                accumulate = config.micro_batches(replicas)
        config = dataclasses.replace(
            config, batch_parts=replicas * accumulate, accumulate=accumulate
        )
        resolved = resolve_auto(resolved, output_dir, on_gpus(strategy))
        # Everything is validated before the directory becomes a run.
        RunDirectory.refuse_other_settings(
            output_dir, config, resolved, change_settings
        )
        tokenizers = config.tokenizers(Path(data_dir))
        data = TrainingData.open(task, data_dir, resolved, tokenizers, config.seed)
        group = ProcessGroup.from_strategy(strategy)
        if group.is_chief:
            for remark in hparams_remarks(config.hparams_set, changed_names):
                say(remark)
        with group.watched():
            run = open_run(output_dir, config, resolved, group, change_settings)
            run.checkpoints.lock = lock
            trainer = Trainer(run, strategy, watching, data, callbacks, plugins)
            metrics = trainer.train()
    return TrainResult.from_metrics(metrics, group)


def _check_data_dir(data_dir: str | Path, output_dir: str | Path) -> None:
    require_local("data_dir", data_dir)
    if Path(output_dir).resolve() == Path(data_dir).resolve():
        raise UserError(
            f"--output_dir: {output_dir} is the --data_dir; give a directory for the "
            "run"
        )


def _exclusive(
    output_dir: str | Path,
) -> contextlib.AbstractContextManager[Lock | None]:
    """Keeps other training runs out of the directory; only the chief holds the lock."""
    if ProcessGroup.from_environment().is_chief:
        return training_lock(output_dir)
    return contextlib.nullcontext()


def _with_changes(
    hparams: HParams, changes: str | Mapping[str, object], train_steps: int | None
) -> tuple[HParams, list[str]]:
    """Returns the changed hyper-parameters, and the names that `changes` has."""
    if isinstance(changes, str):
        names = list(split_pairs(changes, "--hparams: "))
        hparams = hparams.parse(changes)
    else:
        names = list(changes)
        hparams = hparams.override(**changes)
    if train_steps is not None:
        hparams = hparams.override(train_steps=train_steps)
    return hparams, names


def open_run(
    path: str | Path,
    config: RunConfig,
    hparams: HParams,
    group: ProcessGroup,
    change_settings: bool,
) -> RunDirectory:
    """Makes or opens the run directory; of several processes only the chief writes.

    Raises:
        UserError: it holds a run with other settings.
    """
    if group.is_chief:
        run = RunDirectory.create(path, config, hparams, change_settings)
        remove_incomplete(run.path, "model.ckpt-")
        remove_incomplete(run.path, "best.ckpt-")
        group.barrier()
        return run
    group.barrier()
    RunDirectory.refuse_other_settings(
        path, config, hparams, change_settings, is_new=True
    )
    return RunDirectory(path)
