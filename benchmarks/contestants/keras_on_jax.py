"""This project's layers on Keras's JAX backend, with optax's Adam.

It shows what the layers can do: the whole update is one compiled function, without
TensorFlow's variables and replicas.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
from jax import numpy as jnp
from workload import Workload

from contestants import TrainingStep
from contestants.jax_update import compiled_step, uses_gpu
from t2t_keras.model.execution import Execution, executed_by
from t2t_keras.model.transformer import Transformer

__all__ = ["training_step", "uses_gpu"]


def training_step(work: Workload) -> TrainingStep:
    """Returns an update on rows of one pair each."""
    model = Transformer(work.hparams, work.vocab_size)
    weights = [weight.value for weight in model.trainable_variables]
    source, target = (jnp.asarray(work.ids(seed)) for seed in (0, 1))
    execution = Execution(is_fused=True, keep=jax.lax.optimization_barrier)

    def loss_of(weights: list[jax.Array], step: jax.Array) -> jax.Array:
        seed = jnp.stack([jnp.zeros([], jnp.uint32), step])
        variables = zip(model.trainable_variables, weights, strict=True)
        with keras.StatelessScope(variables), executed_by(execution):
            loss_sum, _ = model.training_losses(source, target, seed)
        return loss_sum / target.size

    return compiled_step(work, weights, loss_of)
