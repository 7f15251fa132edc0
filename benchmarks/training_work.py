"""A training step on random ids, to be timed."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from workload import Workload

from t2t_keras import HParams
from t2t_keras.data.pipeline import rows_per_replica
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.checkpoint import model_variables
from t2t_keras.training.optimizer import make_optimizer
from t2t_keras.training.step import TrainStep
from t2t_keras.training.strategy import distribute, make_strategy

LEARNING_RATE = 1e-4


class TrainingWork(NamedTuple):
    """A training step to be timed.

    Attributes:
        step: makes one update and returns when it is done.
        traces: returns how often the step has been traced so far.
        parameters: number of the model's parameters.
    """

    step: Callable[[], None]
    traces: Callable[[], int]
    parameters: int


def model_and_step(
    hparams: HParams,
    vocab_size: int,
    strategy: tf.distribute.Strategy,
    micro_batches: int = 1,
) -> tuple[Transformer, TrainStep]:
    """Returns a new model on the replicas of a strategy, and its step."""
    with strategy.scope():
        model = Transformer(hparams, vocab_size)
        optimizer = make_optimizer(model_variables(model), hparams)
        return model, TrainStep(model, optimizer, strategy, 0, micro_batches)


def prepare(work: Workload, replicas: int = 1, micro_batches: int = 1) -> TrainingWork:
    """Returns the work of `TrainStep` on so many simulated replicas.

    Each divides its rows into so many micro-batches.
    """
    strategy = make_strategy(replicas)
    model, train = model_and_step(
        work.hparams, work.vocab_size, strategy, micro_batches
    )
    sides = tuple(
        rows_per_replica(tf.constant(work.ids(seed)), replicas, micro_batches)
        for seed in (0, 1)
    )
    (batch,) = distribute(strategy, tf.data.Dataset.from_tensor_slices(sides))
    done = 0

    def step() -> None:
        nonlocal done
        float(train.update(batch, done, LEARNING_RATE).loss_sum)
        done += 1

    return TrainingWork(
        step, train.function.experimental_get_tracing_count, model.count_params()
    )
