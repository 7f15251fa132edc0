"""N replicas are one replica: gradients, weights, dropout."""

import numpy as np
import pytest
import tensorflow as tf
from one_step import (
    HPARAMS,
    VOCAB,
    Setup,
    assert_close,
    summed_loss,
    unequal_batch,
)

from t2t_keras.model.transformer import Transformer
from t2t_keras.training.checkpoint import model_variables
from t2t_keras.training.optimizer import make_optimizer
from t2t_keras.training.step import TrainStep
from t2t_keras.training.strategy import distribute, make_strategy


@pytest.fixture(scope="module")
def one_replica():
    return Setup(1)


@pytest.mark.parametrize(
    "replicas", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8))]
)
def test_gradients_do_not_depend_on_the_number_of_replicas(one_replica, replicas):
    batch = unequal_batch(1)
    expected = one_replica.gradients(*batch)
    assert_close(Setup(replicas).gradients(*batch), expected, relative=1e-5)


def test_several_steps_in_a_call_are_single_steps():
    """Up to rounding; how many are in a call does not change a bit."""
    ends, sums = [], []
    for calls in ([4, 4, 1], [2, 3, 4], None):
        setup = Setup(2, HPARAMS.override(dropout=0.1))
        batches = iter(setup.batches(*(unequal_batch(step) for step in range(9))))
        rates = [0.01 * (step + 1) for step in range(9)]
        if calls:
            firsts = np.cumsum([0, *calls])
            results = [
                setup.step.update_from(batches, first, rates[first : first + count])
                for first, count in zip(firsts, calls, strict=False)
            ]
            assert setup.step._loop.experimental_get_tracing_count() == 1
        else:
            results = [
                setup.step.update(next(batches), step, rate)
                for step, rate in enumerate(rates)
            ]
        sums.append([float(sum(values)) for values in zip(*results, strict=True)])
        ends.append({k: v.read_value().numpy() for k, v in setup.weights.items()})
    for name, value in ends[0].items():
        np.testing.assert_array_equal(ends[1][name], value, err_msg=name)
    assert_close(ends[2], ends[0], relative=1e-5)
    np.testing.assert_allclose(sums[:2], sums[1:], rtol=1e-6)


def test_replicas_draw_different_dropout():
    """Two replicas with the same rows have different losses, and steps differ, too."""
    setup = Setup(2, HPARAMS.override(dropout=0.5))
    source, target = (np.tile(ids[:4], (2, 1)) for ids in unequal_batch(2))

    @tf.function
    def losses(batch, step):
        def on_replica(s, t):
            seed = setup.step._dropout_seed(step)
            return summed_loss(setup.model, s, t, seed)

        return setup.strategy.run(on_replica, args=batch)

    def at(step):
        value = losses(setup.batch(source, target), tf.constant(step, tf.int64))
        return [float(v) for v in setup.strategy.experimental_local_results(value)]

    first, second = at(0)
    assert abs(first - second) > 1e-3 * first
    assert at(0) == [first, second]
    assert at(1) != [first, second]


def test_clipping_bounds_the_mean_gradient():
    setup = Setup(2, HPARAMS.override(clip_norm=0.01))
    batch = setup.batch(*unequal_batch(1))
    before = [v.read_value().numpy() for v in setup.weights.values()]
    result = setup.step.update(batch, 0, 1.0)
    after = [v.read_value().numpy() for v in setup.weights.values()]
    moved = sum(((a - b) ** 2).sum() for a, b in zip(before, after, strict=True))
    assert float(result.gradient_norm) > 0.01
    np.testing.assert_allclose(np.sqrt(moved), 0.01, rtol=1e-3)


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_an_update_that_is_not_finite_is_skipped_and_counted(clip_norm):
    setup = Setup(2, HPARAMS.override(clip_norm=clip_norm))
    batch = setup.batch(*unequal_batch(1))
    gamma = next(v for name, v in setup.weights.items() if name.endswith("gamma"))
    good = gamma.read_value()

    def update(step: int, value: tf.Tensor) -> tuple[float, int, int]:
        gamma.assign(value)
        before = [v.read_value().numpy() for v in setup.weights.values()]
        result = setup.step.update(batch, step, 1.0)
        after = [v.read_value().numpy() for v in setup.weights.values()]
        same = [
            np.array_equal(*pair, equal_nan=True)
            for pair in zip(before, after, strict=True)
        ]
        assert all(same) == bool(result.skipped)
        assert np.isfinite([float(value) for value in result]).all()
        counts = setup.step.skipped, setup.step.skipped_in_a_row
        return float(result.skipped), *(int(c.read_value()) for c in counts)

    assert update(0, good) == (0.0, 0, 0)
    assert update(1, good * float("nan")) == (1.0, 1, 1)
    assert update(2, good * float("inf")) == (1.0, 2, 2)
    assert update(3, good) == (0.0, 2, 0)
    assert update(4, good * float("nan")) == (1.0, 3, 1)


def test_a_trial_computes_everything_and_changes_nothing():
    hparams = HPARAMS.override(compute_dtype="float16", ema_decay=0.9)
    strategy = make_strategy(simulate_devices=2)
    with strategy.scope():
        model = Transformer(hparams, VOCAB)
        weights = model_variables(model)
        step = TrainStep(model, make_optimizer(weights, hparams), strategy, 5)
    rows = tf.ones([2, 3, 4], tf.int32)
    (batch,) = distribute(strategy, tf.data.Dataset.from_tensor_slices((rows, rows)))
    step.skipped.assign(3)  # in a run that goes on
    everything = {**weights, **step.variables, **step.counters}
    before = {name: v.read_value().numpy() for name, v in everything.items()}
    result = step.update(batch, 0, 1.0, is_trial=True)
    assert float(result.gradient_norm) > 0
    for name, variable in everything.items():
        np.testing.assert_array_equal(
            variable.read_value().numpy(), before[name], err_msg=name
        )
    step.update(batch, 4, 1.0)
    changed = sum(
        not np.array_equal(v.read_value().numpy(), before[name])
        for name, v in everything.items()
    )
    assert changed > len(weights)


def test_a_skipped_first_update_is_counted_neither_by_adam_nor_by_the_average():
    hparams = HPARAMS.override(ema_decay=0.9)
    strategy, found = make_strategy(), []
    for is_first_skipped in (False, True):
        with strategy.scope():
            tf.keras.utils.set_random_seed(1)
            model = Transformer(hparams, VOCAB)
            weights = model_variables(model)
            step = TrainStep(model, make_optimizer(weights, hparams), strategy, 5)
        sides = tuple(tf.constant(ids[None], tf.int32) for ids in unequal_batch(1))
        (batch,) = distribute(strategy, tf.data.Dataset.from_tensor_slices(sides))
        if is_first_skipped:
            gamma = next(v for name, v in weights.items() if name.endswith("gamma"))
            good = gamma.read_value()
            gamma.assign(good * float("nan"))
            step.update(batch, 0, 0.1)
            gamma.assign(good)
        step.update(batch, int(is_first_skipped), 0.1)
        variables = {**weights, **step.variables}
        found.append({k: v.read_value().numpy() for k, v in variables.items()})
        for name, average in step.ema.averages.items():
            np.testing.assert_allclose(
                average.read_value().numpy(), found[-1][name], rtol=1e-6
            )
    for name, value in found[0].items():
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)


def test_the_first_update_of_adam_is_that_of_step_one():
    """Its bias corrections cancel: weights move by the learning rate, up to epsilon."""
    setup = Setup(1)
    with setup.strategy.scope():
        optimizer = make_optimizer(setup.weights, HPARAMS)
        step = TrainStep(setup.model, optimizer, setup.strategy, 5)
    before = {name: weight.numpy() for name, weight in setup.weights.items()}
    step.update(setup.batch(*unequal_batch(1)), 0, 0.01)
    for name, weight in setup.weights.items():
        change = np.abs(weight.numpy() - before[name]).max()
        assert change == pytest.approx(0.01, rel=1e-2), name
