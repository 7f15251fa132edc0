"""`TrainStep` on packed rows and the compiled search, as `t2t` runs them on a GPU."""

from collections.abc import Callable

import tensorflow as tf
from decode import timed_search
from variants import DEFAULT, VARIANTS, start_training
from workload import Workload

from contestants import TrainingStep


def uses_gpu() -> bool:
    """Returns whether TensorFlow has a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def training_step(work: Workload) -> TrainingStep:
    """Returns an update of `TrainStep`, in the default way."""
    update = start_training(work, VARIANTS[DEFAULT]).update
    step = 0
    loss_sum = tf.zeros([])

    def run() -> None:
        nonlocal step, loss_sum
        loss_sum = update(step).loss_sum
        step += 1

    tokens = work.batch * work.length
    return TrainingStep(run, lambda: float(loss_sum) / tokens)


def search(work: Workload, beam_size: int, steps: int) -> Callable[[], None]:
    """Returns the translator's search, compiled where there is a GPU."""
    timed = timed_search(work, beam_size, jit_compile=uses_gpu())
    return lambda: timed.run(steps)
