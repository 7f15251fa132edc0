"""Runs of a few steps of a very small model, for tests of the trainer."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import registry
from t2t_keras.data.training_data import TrainingData
from t2t_keras.decoding.engine import Progress, Source, TokenHypothesis
from t2t_keras.decoding.graph_engine import GraphEngine
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.hparam import HParams
from t2t_keras.run.checkpoint import Checkpoint, model_variables, snapshot
from t2t_keras.run.config import config_for
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.hooks import Hook, HookPlugin
from t2t_keras.training.settings import TrainOptions
from t2t_keras.training.step import StepResult, TrainStep
from t2t_keras.training.strategy import make_strategy
from t2t_keras.training.trainer import Trainer

HPARAMS = HParams(
    **{"num_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2},
    **{"warmup_steps": 10, "batch_tokens": 256, "train_steps": 4},
)


def trainer(
    data_dir: Path,
    output_dir: Path,
    problem: str = "translate_text",
    seed: int = 1,
    init_from: Path | None = None,
    options: dict[str, object] | None = None,
    replicas: int = 0,
    parts: int | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    plugins: Sequence[HookPlugin] = (),
    hooks: Sequence[Hook] = (),
    **changes: object,
) -> Trainer:
    """Makes or opens a run; `parts` are of a batch, `changes` of hparams."""
    made = [HookPlugin("", lambda *_, hook=hook: hook) for hook in hooks]
    plugins = [*plugins, *made]
    config = config_for(
        registry.problem(problem), "none", data_dir, seed, init_from=init_from
    )
    config = dataclasses.replace(config, batch_parts=parts)
    run = RunDirectory.create(output_dir, config, HPARAMS.override(**changes))
    defaults = {"log_every": 2, "save_every": 2, "eval_every": 4, "eval_sentences": 0}
    data = TrainingData.open(run.problem, data_dir, run.hparams, run.tokenizers, seed)
    options = TrainOptions(**defaults | (options or {}))
    return Trainer(run, make_strategy(replicas), options, data, callbacks, plugins)


def replace_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has every step add its learning rate to the weights, and the loss on dev rise.

    For tests of what surrounds the steps of a training; tracing a step takes a second,
    and tracing the loss another one.
    """
    tokens = tf.ones([])
    skipped = tf.zeros([])
    result = StepResult(2.5 * tokens, 2.25 * tokens, *[tokens] * 4, skipped)

    def update(
        self: TrainStep,
        batch: object,
        step: int,
        learning_rate: float,
        dry_run: bool = False,
    ) -> StepResult:
        del batch, step
        if learning_rate and not dry_run:
            for weight in self._weights:  # on each replica, which is faster than on all
                for copy in self._strategy.experimental_local_results(weight):
                    copy.assign_add(tf.fill(copy.shape, learning_rate))
        return result

    monkeypatch.setattr(TrainStep, "update", update)
    replace_loss(monkeypatch)


def replace_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the loss of a split grow with the weights, without a graph of the model."""

    def loss(self: Evaluator, meter: object = None) -> dict[str, float]:
        del meter
        loss = 2.5 + float(np.mean(self.translator.model.weights[0]))
        perplexity = math.exp(min(loss, 700.0))
        return {"nll": loss, "perplexity": perplexity, "accuracy": 0.5}

    monkeypatch.setattr(Evaluator, "loss", loss)


def replace_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has runs translate each text into its own tokens.

    For tests of what is done with outputs; tracing a search takes two seconds.
    """

    def search(
        self: GraphEngine,
        sources: Sequence[Source],
        options: DecodingOptions,
        progress: Progress | None = None,
    ) -> list[list[TokenHypothesis]]:
        if progress:
            progress(sources)
        outputs = (TokenHypothesis(tuple(x.ids), -1.0, -1.0) for x in sources)
        return [[output] * options.n_best for output in outputs]

    monkeypatch.setattr(GraphEngine, "search", search)


def untrained(data_dir: Path, output_dir: Path, seed: int) -> None:
    """Makes a run whose only checkpoint has the initial weights."""
    problem = registry.problem("translate_text")
    run = RunDirectory.create(
        output_dir, config_for(problem, "none", data_dir, seed), HPARAMS
    )
    keras.utils.set_random_seed(seed)
    run.checkpoints.save(1, snapshot(model_variables(run.build_model()), 1), keep=1)


def weights(output_dir: Path, step: int = 4) -> dict[str, np.ndarray]:
    """Returns the tensors of a checkpoint."""
    checkpoint = Checkpoint(output_dir / f"model.ckpt-{step}")
    return {name: checkpoint.tensor(name) for name in checkpoint.shapes}


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    """Asserts that two checkpoints are the same, bit for bit."""
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)
