"""This project's layers on Keras's JAX backend, with optax's Adam.

It shows what the layers can do: the whole update is one compiled function, without
TensorFlow's variables and replicas.
"""

import functools
import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import optax
from jax import numpy as jnp
from workload import LEARNING_RATE, Workload

from contestants import TrainingStep
from t2t_keras.model.execution import Execution, executed_by
from t2t_keras.model.loss import training_losses
from t2t_keras.model.transformer import Transformer


def uses_gpu() -> bool:
    """Returns whether JAX has a GPU."""
    return jax.default_backend() == "gpu"


def training_step(work: Workload) -> TrainingStep:
    """Returns an update on rows of one pair each."""
    hparams = work.hparams
    model = Transformer(hparams, work.vocab_size)
    weights = [weight.value for weight in model.trainable_variables]
    adam = optax.adam(
        LEARNING_RATE, hparams.adam_beta1, hparams.adam_beta2, hparams.adam_epsilon
    )
    state = adam.init(weights)
    source, target = (jnp.asarray(work.ids(seed)) for seed in (0, 1))
    execution = Execution(is_fused=True, keep=jax.lax.optimization_barrier)

    def loss_of(weights: list[jax.Array], step: jax.Array) -> jax.Array:
        seed = jnp.stack([jnp.zeros([], jnp.uint32), step])
        variables = zip(model.trainable_variables, weights, strict=True)
        with keras.StatelessScope(variables), executed_by(execution):
            loss_sum, _ = training_losses(model, source, target, seed)
        return loss_sum / target.size

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(
        weights: list[jax.Array], state: optax.OptState, step: jax.Array
    ) -> tuple[list[jax.Array], optax.OptState, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, step)
        updates, state = adam.update(gradients, state)
        return optax.apply_updates(weights, updates), state, loss

    step = 0
    loss = jnp.zeros([])

    def run() -> None:
        nonlocal weights, state, loss, step
        weights, state, loss = update(weights, state, jnp.uint32(step))
        step += 1

    return TrainingStep(run, lambda: float(loss))
