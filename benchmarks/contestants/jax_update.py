"""An update in JAX, with optax's Adam, all of it in one compiled function."""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import optax
from jax import numpy as jnp
from workload import LEARNING_RATE, Workload

from contestants import TrainingStep

Weights = TypeVar("Weights")


def uses_gpu() -> bool:
    """Returns whether JAX has a GPU."""
    return jax.default_backend() == "gpu"


def compiled_step(
    work: Workload,
    weights: Weights,
    loss_of: Callable[[Weights, jax.Array], jax.Array],
) -> TrainingStep:
    """Returns an update.

    Args:
        work: has the constants of Adam.
        weights: a tree of arrays.
        loss_of: returns the mean loss, given the weights and the step, uint32.
    """
    hparams = work.hparams
    adam = optax.adam(
        LEARNING_RATE, hparams.adam_beta1, hparams.adam_beta2, hparams.adam_epsilon
    )
    state = adam.init(weights)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(
        weights: Weights, state: optax.OptState, step: jax.Array
    ) -> tuple[Weights, optax.OptState, jax.Array]:
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
