"""Label-smoothed cross-entropy: its value, its gradient, its sums."""

import numpy as np
import pytest
import tensorflow as tf
from helpers.numpy_transformer import softmax
from helpers.reference import reference

from t2t_keras.model.execution import Execution, executed_by
from t2t_keras.model.loss import (
    count_tokens,
    cross_entropies,
    output_losses,
    sum_over_tokens,
)


def soft_targets(labels, vocab, smoothing):
    """1 - smoothing on the label and smoothing / (V - 1) on every other id."""
    targets = np.full((len(labels), vocab), smoothing / (vocab - 1))
    targets[np.arange(len(labels)), labels] = 1 - smoothing
    return targets


def entropy(vocab, smoothing):
    """Of the soft targets: the least that the loss can be."""
    if not smoothing:
        return 0.0
    off_value = smoothing / (vocab - 1)
    confidence = 1 - smoothing
    return -confidence * np.log(confidence) - (vocab - 1) * off_value * np.log(
        off_value
    )


def example(vocab, rows=7, scale=3.0):
    rng = np.random.default_rng(vocab)
    logits = rng.normal(scale=scale, size=(rows, vocab)).astype(np.float32)
    return logits, rng.integers(0, vocab, rows).astype(np.int32)


def watched(tape, array):
    tensor = tf.constant(array)
    tape.watch(tensor)
    return tensor


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("vocab", [2, 11, 1000])
def test_value_is_the_cross_entropy_to_soft_targets(vocab, smoothing):
    logits, labels = example(vocab)
    exact = np.log(softmax(logits.astype(np.float64)))
    loss, nll = cross_entropies(logits, labels, smoothing)
    expected = -(soft_targets(labels, vocab, smoothing) * exact).sum(1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(nll, -exact[np.arange(7), labels], rtol=1e-5)


def output_layer(vocab=11, rows=40, width=5, scale=1.0):
    """States, a softmax matrix, labels, and weights with some padding."""
    rng = np.random.default_rng(rows)
    states = rng.normal(scale=scale, size=(rows, width)).astype(np.float32)
    table = rng.normal(scale=scale, size=(vocab, width)).astype(np.float32)
    weights = (np.arange(rows) % 4 > 0).astype(np.float32)
    return states, table, rng.integers(0, vocab, rows).astype(np.int32), weights


def losses_and_gradients(states, table, labels, weights, smoothing, dtype="float32"):
    """The gradients of `output_losses`, with an upstream gradient of 3."""
    with tf.GradientTape() as tape:
        x = watched(tape, states)
        e = watched(tape, table)
        label_rows = tf.gather(e, labels)
        loss, nll = output_losses(x, e, label_rows, labels, weights, smoothing, dtype)
        total = 3.0 * loss
    gradients = map(tf.convert_to_tensor, tape.gradient(total, [x, e]))
    return [x.numpy() for x in (loss, nll, *gradients)]


def expected_losses_and_gradients(states, table, labels, weights, smoothing):
    """The same by the formulas, in float64."""
    states = states.astype(np.float64)
    table = table.astype(np.float64)
    probabilities = softmax(states @ table.T)
    targets = soft_targets(labels, len(table), smoothing)
    loss = -np.sum(weights[:, None] * targets * np.log(probabilities))
    nll = -np.sum(weights * np.log(probabilities[np.arange(len(labels)), labels]))
    logits = 3.0 * weights[:, None] * (probabilities - targets)
    return [loss, nll, logits @ table, logits.T @ states]


def assert_as_expected(arguments, tolerance):
    """By the formulas for TensorFlow's kernels and by those for XLA."""
    expected = expected_losses_and_gradients(*arguments)
    for is_fused in (False, True):
        with executed_by(Execution(is_fused=is_fused)):
            results = losses_and_gradients(*arguments)
        for actual, exact in zip(results, expected, strict=True):
            np.testing.assert_allclose(actual, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("ids", "smoothing"), [(np.int32, 0.0), (np.int64, 0.1)])
@pytest.mark.parametrize("vocab", [11, 37, 64, 65])  # whole blocks have 64
def test_gradient_is_softmax_minus_soft_targets(vocab, smoothing, ids):
    states, table, labels, weights = output_layer(vocab)
    arguments = (states, table, labels.astype(ids), weights, smoothing)
    assert_as_expected(arguments, 1e-5)


@pytest.mark.parametrize("shift", [-60.0, 60.0])
def test_what_fills_up_the_last_block_does_not_count(shift):
    """Neither if all logits are negative, nor if the copied one is the largest."""
    states, table, labels, weights = output_layer(37)
    states[:, 0] = 1.0
    table[:, 0] = shift
    table[0, 0] = abs(shift)
    arguments = (states, table, labels, weights, 0.1)
    assert_as_expected(arguments, 2e-4)


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("vocab", [37, 64])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bits_round_the_gradient_only(vocab, dtype, is_fused):
    """The losses of rounded logits are exact: they are computed in float32."""
    states, table, labels, weights = output_layer(vocab)
    # Multiples of 1 / 4 whose products and sums have few bits.
    states, table = (np.round(4 * x).clip(-4, 4) / 4 for x in (states, table))
    arguments = (states, table, labels, weights, 0.1)
    with executed_by(Execution(is_fused=is_fused)):
        results = losses_and_gradients(*arguments, dtype)
    expected = expected_losses_and_gradients(*arguments)
    np.testing.assert_allclose(results[:2], expected[:2], rtol=1e-6)
    for actual, exact in zip(results[2:], expected[2:], strict=True):
        error = np.linalg.norm(actual - exact) / np.linalg.norm(exact)
        assert error < 0.005, error


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_small_gradient_is_exact_in_16_bits(dtype):
    """Where the label is almost certain, P - Q is a small difference.

    P itself, rounded to bfloat16, would be up to 0.002 away: as much as the gradient.
    """
    rng = np.random.default_rng(3)
    # Multiples of 1 / 2 whose products and sums have few bits, on any processor.
    table = (np.round(2 * rng.normal(size=(20, 40))).clip(-2, 2) / 2).astype("f")
    labels = rng.integers(0, 20, 64).astype(np.int32)
    states = table[labels] / 2
    results = losses_and_gradients(states, table, labels, np.ones(64, "f"), 0.0, dtype)
    logits = states @ table.T
    excess = 3.0 * (softmax(logits) - soft_targets(labels, 20, 0.0))
    assert np.abs(excess).max(axis=1).mean() < 0.01  # so certain
    for actual, expected in zip(
        results[2:], (excess @ table, excess.T @ states), strict=True
    ):
        error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
        assert error < 0.005, error


def test_the_log_likelihood_has_no_gradient():
    states, table, labels, weights = output_layer()
    with tf.GradientTape() as tape:
        x = watched(tape, states)
        rows = tf.gather(table, labels)
        _, nll = output_losses(x, table, rows, labels, weights, 0.1, "float32")
    assert not np.any(tape.gradient(nll, x))


@pytest.mark.parametrize("is_fused", [False, True])
def test_unlikely_labels_have_finite_losses(is_fused):
    """Their probability is 0 in float32, and its logarithm must not be taken."""
    table = np.eye(3, dtype=np.float32)
    states = 300.0 * table[:2]
    labels = np.array([1, 2], np.int32)
    weights = np.ones(2, np.float32)
    arguments = (states, table, labels, weights, 0.1)
    with executed_by(Execution(is_fused=is_fused)):
        _, nll, *gradients = losses_and_gradients(*arguments)
    np.testing.assert_allclose(nll, 600, rtol=1e-6)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("case", range(5))
def test_equals_what_tensor2tensor_computed(case):
    """Up to a constant: it subtracts the entropy of the targets."""
    oracle = np.load(reference("t2t/oracle/misc/padded_cross_entropy.npz"))
    logits, labels, smoothing, expected, total, tokens = (
        oracle[f"case{case}/{name}"]
        for name in ("logits", "labels", "label_smoothing", "per_token", "num", "den")
    )
    vocab = logits.shape[-1]
    smoothing = float(smoothing)
    rows = logits.reshape(-1, vocab)
    per_token = cross_entropies(rows, labels.reshape(-1), smoothing)[0].numpy()
    is_token = (labels != 0).reshape(-1)
    actual = (per_token - entropy(vocab, smoothing)) * is_token
    np.testing.assert_allclose(actual, expected.reshape(-1) * is_token, atol=1e-4)
    assert float(count_tokens(labels)) == tokens
    summed = float(sum_over_tokens(per_token, labels))
    summed -= float(tokens) * entropy(vocab, smoothing)
    np.testing.assert_allclose(summed, total, rtol=1e-5)
