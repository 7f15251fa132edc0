"""Loss and gradient on random ids on JAX, to be timed, without TensorFlow.

Model and loss are the same as in training. The optimizer and the replicas use
TensorFlow and are left out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp
from workload import Workload

from t2t_keras.model.loss import summed_cross_entropies
from t2t_keras.model.transformer import Transformer


class GradientWork(NamedTuple):
    """A training step to be timed.

    Attributes:
        step: computes loss and gradient and returns when they are done.
        traces: returns how often the step has been traced so far.
        parameters: number of the model's parameters.
        device: name of the device.
    """

    step: Callable[[], None]
    traces: Callable[[], int]
    parameters: int
    device: str


def prepare(work: Workload) -> GradientWork:
    """Returns the work of loss and gradient on the first device."""
    model = Transformer(work.hparams, work.vocab_size)
    weights = [weight.value for weight in model.trainable_variables]
    others = [weight.value for weight in model.non_trainable_variables]
    source, target = (jnp.asarray(work.ids(seed)) for seed in (0, 1))
    smoothing = work.hparams.label_smoothing
    traces = 0

    def loss(weights: list[Any], source: Any, target: Any, seed: Any) -> Any:
        nonlocal traces
        traces += 1
        logits, _ = model.stateless_call(weights, others, source, target, seed=seed)
        return summed_cross_entropies(logits, target, smoothing)[0]

    gradient = jax.jit(jax.value_and_grad(loss))
    done = 0

    def step() -> None:
        nonlocal done
        seed = jnp.array([0, done], jnp.uint32)
        jax.block_until_ready(gradient(weights, source, target, seed))
        done += 1

    device = jax.devices()[0].device_kind
    return GradientWork(step, lambda: traces, model.count_params(), device)
