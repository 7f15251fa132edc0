"""N replicas are one replica: gradients, weights, dropout. The loss scale."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import one_step
from helpers.one_step import HPARAMS, Setup, assert_close, unequal_batch
from helpers.small_run import assert_same, trainer, weights

from t2t_keras import UserError
from t2t_keras.model import Transformer
from t2t_keras.model.loss import summed_cross_entropies
from t2t_keras.training import step as module
from t2t_keras.training.step import GradientSums, LossScale


@pytest.fixture(scope="module")
def big_batch():
    """The gradients of 13 pairs at once."""
    return Setup(1).gradients(*unequal_batch(1))


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_several_steps_in_a_call_are_single_steps(replicas):
    """Up to rounding."""
    final_weights = []
    sums = []
    rates = [0.01 * (step + 1) for step in range(5)]
    for is_loop in (True, False):
        setup = Setup(replicas, HPARAMS.override(dropout=0.1))
        batches = iter(setup.batches(*(unequal_batch(step) for step in range(5))))
        if is_loop:
            update = setup.step.update_from
            results = [update(batches, 0, rates[:3]), update(batches, 3, rates[3:])]
        else:
            update = setup.step.update
            results = [update(next(batches), i, rate) for i, rate in enumerate(rates)]
        sums.append([float(sum(values)) for values in zip(*results, strict=True)])
        final_weights.append(
            {k: v.read_value().numpy() for k, v in setup.weights.items()}
        )
    assert_close(*final_weights, relative=1e-5)
    np.testing.assert_allclose(*sums, rtol=1e-6)


class FromLogits(Transformer):
    """Computes the cross-entropy from logits, and not from the softmax matrix given."""

    def training_losses(self, source, target, seed, packing=None, first_row=0, **_):
        states, _ = self.decoder_outputs(source, target, seed, packing, first_row)
        return summed_cross_entropies(self.logits(states), target, 0.1)


@pytest.mark.parametrize("share_embeddings", [True, False])
def test_the_loss_is_that_of_the_model(monkeypatch, share_embeddings):
    hparams = HPARAMS.override(share_embeddings=share_embeddings)
    expected = Setup(1, hparams).gradients(*unequal_batch(1))
    monkeypatch.setattr(one_step, "Transformer", FromLogits)
    actual = Setup(1, hparams).gradients(*unequal_batch(1))
    assert_close(actual, expected, relative=1e-4)


DROPOUT = HPARAMS.override(dropout=0.1, attention_dropout=0.2, ffn_dropout=0.1)


@pytest.fixture(scope="module")
def dropped_batch():
    """The gradients of 13 pairs at once, with dropout."""
    return Setup(1, DROPOUT).gradients(*unequal_batch(1))


@pytest.mark.parametrize(
    ("replicas", "micro_batches"),
    [(2, 4), *(pytest.param(*n, marks=pytest.mark.slow) for n in ((1, 3), (2, 1)))],
)
def test_dropout_does_not_depend_on_how_the_batch_is_divided(
    dropped_batch, big_batch, replicas, micro_batches
):
    source, target = unequal_batch(1)
    setup = Setup(replicas, DROPOUT, micro_batches)
    actual, counts = setup.gradients_and_counts(setup.batch(source, target))
    assert_close(actual, dropped_batch, relative=1e-5)
    rows = 13 + -13 % (replicas * micro_batches)  # some of padding only
    assert counts == [(source != 0).sum(), (target != 0).sum(), 2 * rows * 12]
    with pytest.raises(AssertionError):  # the masks did matter
        assert_close(actual, big_batch, relative=1e-2)


def test_dropout_is_different_in_every_row_and_step():
    setup = Setup(1, HPARAMS.override(dropout=0.5))
    source, target = (np.tile(ids[:1], (2, 1)) for ids in unequal_batch(2))

    rows = setup.model.decoder_outputs(source, target, np.array([5, 0]))[0].numpy()
    assert np.abs(rows[1] - rows[0]).max() > 0.1
    batch = setup.batch(source, target)
    results = [setup.step.update(batch, step, 0.0, dry_run=True) for step in (0, 0, 1)]
    losses = [float(result.loss_sum) for result in results]
    assert losses[0] == losses[1] != pytest.approx(losses[2], rel=1e-3)


def test_updates_are_clipped_or_if_they_are_not_finite_skipped_and_counted():
    setup = Setup(2, HPARAMS.override(clip_norm=0.01))
    batch = setup.batch(*unequal_batch(1))
    gamma = next(v for name, v in setup.weights.items() if name.endswith("gamma"))
    good = gamma.read_value()
    counters = setup.step.skipped, setup.step.skipped_in_a_row
    scenes = [(1, 0, 0), (np.nan, 1, 1), (np.inf, 2, 2), (1, 2, 0), (np.nan, 3, 1)]
    for step, (factor, *counts) in enumerate(scenes):
        gamma.assign(good * factor)
        initial = [v.read_value().numpy() for v in setup.weights.values()]
        result = setup.step.update(batch, step, 1.0)
        updated = [v.read_value().numpy() for v in setup.weights.values()]
        are_equal = map(np.array_equal, initial, updated, itertools.repeat(True))
        assert all(are_equal) == bool(result.skipped) == (factor != 1)
        assert np.isfinite([float(value) for value in result]).all()
        assert [int(counter.read_value()) for counter in counters] == counts
        if factor == 1:  # of the mean gradient
            moved = [
                ((a - b) ** 2).sum() for a, b in zip(initial, updated, strict=True)
            ]
            assert float(result.gradient_norm) > 0.01
            np.testing.assert_allclose(np.sqrt(sum(moved)), 0.01, rtol=1e-3)


@pytest.mark.parametrize(
    ("clip_norm", "loss", "expected"),
    [
        (0.0, 8.0, (0.3, 0.4)),
        (0.6, 8.0, (0.3, 0.4)),
        (0.25, 8.0, (0.15, 0.2)),
        (0.0, np.inf, (0.0, 0.0)),
    ],
)
def test_only_a_larger_norm_is_clipped(clip_norm, loss, expected):
    """Of 4 target tokens, the mean gradient has the norm 0.5."""
    step = Setup(1, HPARAMS.override(clip_norm=clip_norm)).step
    sums = GradientSums(
        gradients=[tf.constant([[1.2]]), tf.constant([1.6])],
        loss=tf.constant(loss),
        source_tokens=tf.constant(2.0),
        target_tokens=tf.constant(4.0),
        positions=tf.constant(9.0),
        nll=tf.constant(8.0),
    )
    gradients, result = step.mean_gradients(sums)
    actual = [float(tf.squeeze(gradient)) for gradient in gradients]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    is_finite = loss == 8.0
    np.testing.assert_allclose(result.gradient_norm, 0.5 * is_finite, rtol=1e-6)
    assert float(result.skipped) == (not is_finite)


def test_a_trial_computes_everything_and_changes_nothing():
    hparams = HPARAMS.override(compute_dtype="float16", ema_decay=0.9)
    setup = Setup(2, hparams, has_adam=True)
    batch = setup.batch(*unequal_batch(1))
    step = setup.step
    step.skipped.assign(3)  # in a run that goes on

    def everything():
        variables = {**setup.weights, **step.variables}
        return {name: v.read_value().numpy() for name, v in variables.items()}

    initial = everything()
    assert float(step.update(batch, 0, 1.0, dry_run=True).gradient_norm) > 0
    assert_same(everything(), initial)
    step.update(batch, 4, 1.0)
    changed = sum((value != initial[k]).any() for k, value in everything().items())
    assert changed > len(setup.weights)


def test_a_skipped_first_update_is_counted_neither_by_adam_nor_by_the_average():
    results = []
    setup = Setup(1, HPARAMS.override(ema_decay=0.9), has_adam=True)
    batch = setup.batch(*unequal_batch(1))
    step = setup.step
    variables = {**setup.weights, **setup.optimizer.variables}
    initial = {k: v.read_value() for k, v in variables.items()}
    for skipped in (0, 1):
        for name, value in initial.items():
            variables[name].assign(value)
        if skipped:
            gamma = next(v for k, v in setup.weights.items() if k.endswith("gamma"))
            good = gamma.read_value()
            gamma.assign(good * float("nan"))
            step.update(batch, 0, 0.1)
            gamma.assign(good)
        step.update(batch, skipped, 0.1)
        results.append({k: v.read_value().numpy() for k, v in variables.items()})
        averages = setup.optimizer.averages
        averages = {k: v.read_value().numpy() for k, v in averages.items()}
        assert_close(results[-1], averages, relative=1e-6)
    assert_same(*results)


# Micro-batches divide a batch as replicas do: the same gradient, less memory.


def test_replicas_that_cannot_share_the_parts_are_refused(data_dir, tmp_path):
    with pytest.raises(UserError, match="into 2 parts, which 3 replicas cannot share"):
        trainer(data_dir, tmp_path, replicas=3, parts=2)


@pytest.mark.slow
def test_memory_shrinks_with_micro_batches():
    script = Path(__file__).parents[2] / "benchmarks/train.py"
    command = [sys.executable, script, "--config", "tiny", "--json"]
    command += ["--memory", "4096", "16384", "--accumulate"]
    undivided, parts = (
        json.loads(subprocess.check_output([*command, count]))["kb_per_token"]
        for count in ("1", "8")
    )
    assert parts < undivided / 3


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
