"""The hooks of a training: every feature that plugs into the trainer, in order."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import keras
import tensorflow as tf

from t2t_keras.data.manifest import Manifest
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.checkpoint import CheckpointDirectory, model_variables
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.evaluation import open_split
from t2t_keras.training.callbacks import Callbacks
from t2t_keras.training.evaluations import (
    BestCheckpoint,
    Evaluations,
    FinalAverages,
    Patience,
    UnevaluatedAverage,
    Validation,
)
from t2t_keras.training.fine_tune import FineTuning
from t2t_keras.training.hooks import Hook, HookPlugin
from t2t_keras.training.metrics_files import MetricsFile, SampleFile, TensorBoard
from t2t_keras.training.optimizer import MovingAverage, Optimizer
from t2t_keras.training.settings import TrainOptions


class _PlaceCheck(Hook):
    """Ends a training whose run directory is gone, before other hooks write there."""

    def __init__(self, checkpoints: CheckpointDirectory) -> None:
        self._checkpoints = checkpoints

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        self._checkpoints.require_place()

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        self._checkpoints.require_place()


def initial_hooks(run: RunDirectory, model: Transformer) -> list[Hook]:
    """Returns the hooks of every process: those that change the initial weights."""
    if run.config.init_from is None:
        return []
    return [FineTuning(run.config.init_from, model, run.tokenizers)]


def chief_hooks(
    run: RunDirectory,
    model: Transformer,
    optimizer: Optimizer,
    options: TrainOptions,
    callbacks: Sequence[keras.callbacks.Callback],
    plugins: Sequence[HookPlugin],
) -> list[Hook]:
    """Returns the hooks of the chief, which evaluates and writes."""
    evaluator = _open_dev(run, model)
    hooks: list[Hook] = [_PlaceCheck(run.checkpoints)]
    if evaluator:
        averages = optimizer.averages if isinstance(optimizer, MovingAverage) else {}
        hooks += dev_hooks(
            evaluator, model_variables(model), averages, run.checkpoints, options
        )
        hooks.append(SampleFile(run.path, evaluator))
    else:
        hooks.append(UnevaluatedAverage(run, options.average_last))
    hooks += [MetricsFile(run.path), TensorBoard(run.path)]
    if callbacks:
        has_dev = evaluator is not None
        hooks.append(
            Callbacks(callbacks, model, run.hparams, options.eval_every, has_dev)
        )
    hooks += [plugin.make(run, evaluator) for plugin in plugins]
    return hooks


def dev_hooks(
    evaluator: Evaluator,
    weights: Mapping[str, tf.Variable],
    moving_averages: Mapping[str, tf.Variable],
    checkpoints: CheckpointDirectory,
    options: TrainOptions,
) -> list[Hook]:
    """Returns the hooks that evaluate on dev, and those that use the evaluations."""
    evaluations = Evaluations(evaluator.problem, options)
    validation = Validation(
        checkpoints.directory, evaluator, evaluations, options.eval_sentences
    )
    averages = FinalAverages(
        validation, weights, moving_averages, checkpoints, options.average_last
    )
    return [
        validation,
        BestCheckpoint(evaluations, weights, checkpoints),
        averages,
        Patience(evaluations, options.patience),
    ]


def _open_dev(run: RunDirectory, model: Transformer) -> Evaluator | None:
    """Opens the dev split of the run's data, if they have one."""
    problem = run.problem
    manifest = Manifest.open(Path(run.config.data_dir), problem.data_name)
    if not manifest.examples.get("dev"):
        return None
    translator = ModelTranslator(problem, model, *run.tokenizers)
    return open_split(run, translator, "dev")
