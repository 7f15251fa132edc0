"""Mixed precision: the loss scale, and training in bfloat16 and float16."""

import numpy as np
import pytest
import tensorflow as tf
from helpers.one_step import HPARAMS, Setup, assert_close, unequal_batch
from helpers.small_run import assert_same, trainer, weights

from t2t_keras.training import step as module
from t2t_keras.training.step import LossScale


@pytest.fixture(scope="module")
def big_batch():
    """The gradients of 13 pairs at once."""
    return Setup(1).gradients(*unequal_batch(1))


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.1), ("float16", 0.02)])
def test_gradients_in_16_bits_are_rounded_ones(big_batch, dtype, tolerance):
    setup = Setup(1, HPARAMS.override(compute_dtype=dtype))
    if setup.step.loss_scale:
        scale = setup.step.loss_scale.variables["loss_scale/scale"]
        scale.assign(1024.0)
    actual = setup.gradients(*unequal_batch(1))
    assert_close(actual, big_batch, relative=tolerance)
    with pytest.raises(AssertionError):
        assert_close(actual, big_batch, relative=1e-5)


def test_an_overflow_halves_the_scale_and_leaves_out_the_update():
    setup = Setup(2, HPARAMS.override(compute_dtype="float16"))
    batch = setup.batch(*unequal_batch(1))
    scale = setup.step.loss_scale.variables["loss_scale/scale"]
    for value, next_scale, skipped in ((2.0**40, 2.0**39, 1), (2.0, 2.0, 0)):
        initial = {k: v.read_value().numpy() for k, v in setup.weights.items()}
        scale.assign(value)
        result = setup.step.update(batch, 0, 0.1)
        assert float(setup.step.loss_scale.value) == next_scale
        assert float(result.skipped) == skipped
        assert (float(result.gradient_norm) == 0) == skipped
        assert np.isfinite(float(result.loss_sum))
        for name, variable in setup.weights.items():
            first_copy, second_copy = setup.strategy.experimental_local_results(
                variable
            )
            np.testing.assert_array_equal(
                first_copy.numpy(), second_copy.numpy(), err_msg=name
            )
            assert np.array_equal(first_copy.numpy(), initial[name]) == skipped, name


def test_the_scale_doubles_after_so_many_good_steps(monkeypatch):
    monkeypatch.setattr(module, "DOUBLE_AFTER", 3)
    scale = LossScale()
    values = []
    for steps, is_finite in ((5, True), (1, False), (3, True), (2, False)):
        for _ in range(steps):
            for variable, value in scale.updates(tf.constant(is_finite)):
                variable.assign(value)
            values.append(float(scale.value))
    assert values == [1, 1, 2, 2, 2, 1, 1, 1, 2, 1, 0.5]


@pytest.mark.slow
def test_a_run_in_float16_skips_and_resumes_exactly(data_dir, tmp_path):
    def train(name: str, steps: int, scale: float | None = None) -> dict:
        training = trainer(
            data_dir, tmp_path / name, compute_dtype="float16", train_steps=steps
        )
        if scale:
            training._step.loss_scale.variables["loss_scale/scale"].assign(scale)
        return training.train()

    figures = train("whole", 4, scale=2.0**40)
    assert figures["skipped_updates"] == 2  # of the last two steps
    train("halves", 2, scale=2.0**40)
    train("halves", 4)
    uninterrupted = weights(tmp_path / "whole")
    assert_same(uninterrupted, weights(tmp_path / "halves"))
    assert uninterrupted["loss_scale/scale"] == 2.0**36
