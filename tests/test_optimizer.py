"""Adam against its equations in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.hparam import HParams
from t2t_keras.training.optimizer import Adam


class NumpyAdam:
    """Kingma and Ba (2015), end of section 2: epsilon is not corrected for bias."""

    def __init__(self, hparams):
        self.hparams, self.m, self.v = hparams, 0.0, 0.0

    def apply(self, weight, gradient, rate, t):
        beta1, beta2 = self.hparams.adam_beta1, self.hparams.adam_beta2
        self.m = beta1 * self.m + (1 - beta1) * gradient
        self.v = beta2 * self.v + (1 - beta2) * gradient**2
        rate *= np.sqrt(1 - beta2**t) / (1 - beta1**t)
        return weight - rate * self.m / (np.sqrt(self.v) + self.hparams.adam_epsilon)


def apply(adam, gradients, rate, step):
    gradients = [tf.constant(gradient, tf.float32) for gradient in gradients]
    adam.apply(gradients, tf.constant(rate, tf.float32), tf.constant(float(step)))


@pytest.mark.parametrize(
    "options", [{}, {"adam_beta1": 0.8, "adam_beta2": 0.997, "adam_epsilon": 1e-2}]
)
def test_thirty_steps_are_the_equations(options):
    hparams = HParams(**options)
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (5,)]
    expected = [rng.normal(size=shape) for shape in shapes]
    variables = [tf.Variable(tf.constant(w, tf.float32)) for w in expected]
    adam, truth = Adam(variables, hparams), [NumpyAdam(hparams) for _ in shapes]
    for step in range(1, 31):
        gradients = [rng.normal(size=shape) * 10.0**-step for shape in shapes]
        rate = 0.1 / step
        apply(adam, gradients, rate, step)
        expected = [
            numpy_adam.apply(weight, gradient, rate, step)
            for numpy_adam, weight, gradient in zip(
                truth, expected, gradients, strict=True
            )
        ]
        for variable, weight in zip(variables, expected, strict=True):
            np.testing.assert_allclose(variable.numpy(), weight, atol=2e-5)
    for i, numpy_adam in enumerate(truth):
        for slots, moment in (
            (adam.first_moments, numpy_adam.m),
            (adam.second_moments, numpy_adam.v),
        ):
            scale = np.abs(moment).max()
            np.testing.assert_allclose(slots[i].numpy(), moment, atol=1e-5 * scale)


def test_the_first_step_is_the_rate_against_the_sign():
    """Whatever the scale of the gradient: m / sqrt(v) is 1."""
    weight = tf.Variable([1.0, 1.0, 1.0])
    apply(Adam([weight], HParams()), [[1e-4, -1.0, 1e4]], 0.5, 1)
    np.testing.assert_allclose(weight.numpy(), [0.5, 1.5, 0.5], rtol=1e-4)


def test_moments_begin_at_zero_and_late_steps_stay_numbers():
    weight = tf.Variable([1.0])
    adam = Adam([weight], HParams())
    assert adam.first_moments[0].numpy() == adam.second_moments[0].numpy() == 0
    apply(adam, [[2.0]], 0.5, 300_000)  # no correction is left: beta^t is 0
    np.testing.assert_allclose(weight.numpy(), 1 - 0.5 * 0.2 / np.sqrt(0.08), rtol=1e-5)
