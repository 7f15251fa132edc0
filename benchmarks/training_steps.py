"""Training steps on random ids: of `TrainStep`, of Keras's `fit` and on JAX."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import keras
from keras import ops
from workload import LEARNING_RATE, Workload

from t2t_keras import HParams
from t2t_keras.model.backend import Tensor
from t2t_keras.model.loss import summed_cross_entropies
from t2t_keras.model.transformer import Transformer

if TYPE_CHECKING:
    import jax
    import tensorflow as tf

    from t2t_keras.training.step import TrainStep


class TimedStep(NamedTuple):
    """A training step to be timed.

    Attributes:
        run: does the step and returns when it is done.
        traces: returns how often the step has been traced so far.
        parameters: number of the model's parameters.
        device: name of JAX's device, or empty.
    """

    run: Callable[[], None]
    traces: Callable[[], int]
    parameters: int
    device: str = ""


def model_and_step(
    hparams: HParams,
    vocab_size: int,
    strategy: "tf.distribute.Strategy",
    micro_batches: int = 1,
) -> "tuple[Transformer, TrainStep]":
    """Returns a new model on the replicas of a strategy, and its `TrainStep`."""
    from t2t_keras.run.checkpoint import model_variables
    from t2t_keras.training.optimizer import make_optimizer
    from t2t_keras.training.step import TrainStep

    with strategy.scope():
        model = Transformer(hparams, vocab_size)
        optimizer = make_optimizer(model_variables(model), hparams)
        return model, TrainStep(model, optimizer, strategy, 0, micro_batches)


def train_step(work: Workload, replicas: int = 1, micro_batches: int = 1) -> TimedStep:
    """Returns an update of `TrainStep`.

    Args:
        work: the model and its batch.
        replicas: simulated devices among which the batch is divided.
        micro_batches: the parts into which each replica divides its rows.
    """
    import tensorflow as tf

    from t2t_keras.data.pipeline import rows_per_replica
    from t2t_keras.training.strategy import distribute, make_strategy

    strategy = make_strategy(replicas)
    model, train = model_and_step(
        work.hparams, work.vocab_size, strategy, micro_batches
    )
    source = rows_per_replica(tf.constant(work.ids(0)), replicas, micro_batches)
    target = rows_per_replica(tf.constant(work.ids(1)), replicas, micro_batches)
    sides = {"source": source, "target": target}
    dataset = tf.data.Dataset.from_tensor_slices(sides)
    (batch,) = distribute(strategy, dataset)
    step = 0

    def run() -> None:
        nonlocal step
        float(train.update(batch, step, LEARNING_RATE).loss_sum)  # waits for the device
        step += 1

    traces = train.function.experimental_get_tracing_count
    return TimedStep(run, traces, model.count_params())


def jax_step(work: Workload) -> TimedStep:
    """Returns loss and gradient on JAX's first device.

    Model and loss are those of training. The optimizer and the replicas use TensorFlow
    and are left out.
    """
    import jax
    from jax import numpy as jnp

    model = Transformer(work.hparams, work.vocab_size)
    weights = [weight.value for weight in model.trainable_variables]
    constants = [weight.value for weight in model.non_trainable_variables]
    source = jnp.asarray(work.ids(0))
    target = jnp.asarray(work.ids(1))
    smoothing = work.hparams.label_smoothing
    traces = 0

    def loss(weights: "list[jax.Array]", seed: "jax.Array") -> "jax.Array":
        nonlocal traces
        traces += 1
        logits, _ = model.stateless_call(weights, constants, source, target, seed=seed)
        return summed_cross_entropies(logits, target, smoothing)[0]

    gradient = jax.jit(jax.value_and_grad(loss))
    step = 0

    def run() -> None:
        nonlocal step
        seed = jnp.array([0, step], jnp.uint32)
        jax.block_until_ready(gradient(weights, seed))
        step += 1

    device = jax.devices()[0].device_kind
    return TimedStep(run, lambda: traces, model.count_params(), device)


class FitModel(keras.Model):
    """A Transformer that `fit` can call, on (source, target) and with its own seed."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.transformer = Transformer(work.hparams, work.vocab_size)
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, pair: tuple[Tensor, Tensor], training: bool = False) -> Tensor:
        """Returns logits [B, T, V]."""
        seed = self.seeds.next() if training else None
        return self.transformer(*pair, seed=seed)


def fit_steps(work: Workload, jit_compile: bool) -> Callable[[int], None]:
    """Returns a function that trains for a number of steps with Keras's `fit`.

    Args:
        work: the model and its batch.
        jit_compile: let XLA compile the step.
    """
    import tensorflow as tf

    hparams = work.hparams

    def loss(target: Tensor, logits: Tensor) -> Tensor:
        return keras.losses.categorical_crossentropy(
            ops.one_hot(target, work.vocab_size),
            logits,
            from_logits=True,
            label_smoothing=hparams.label_smoothing,
        )

    model = FitModel(work)
    optimizer = keras.optimizers.Adam(
        LEARNING_RATE, hparams.adam_beta1, hparams.adam_beta2, hparams.adam_epsilon
    )
    model.compile(optimizer, loss, jit_compile=jit_compile)
    target = work.ids(1)
    pair = (work.ids(0), target)
    batches = tf.data.Dataset.from_tensors((pair, target)).repeat()

    def run(steps: int) -> None:
        model.fit(batches, steps_per_epoch=steps, verbose=0)

    return run
