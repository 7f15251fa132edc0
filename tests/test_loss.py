"""Label-smoothed cross-entropy: its value, its gradient, its sums."""

import numpy as np
import pytest
import tensorflow as tf
from numpy_transformer import softmax
from reference import reference

from t2t_keras.model.loss import (
    count_tokens,
    cross_entropies,
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
    rest = smoothing / (vocab - 1)
    confidence = 1 - smoothing
    return -confidence * np.log(confidence) - (vocab - 1) * rest * np.log(rest)


def smoothed_cross_entropy(logits, labels, smoothing):
    return cross_entropies(logits, labels, smoothing)[:, 0]


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
    exact = logits.astype(np.float64)
    expected = -(soft_targets(labels, vocab, smoothing) * np.log(softmax(exact))).sum(1)
    actual = smoothed_cross_entropy(logits, labels, smoothing).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_beside_it_is_the_log_likelihood_which_has_no_gradient(smoothing):
    logits, labels = example(11)
    expected = -np.log(softmax(logits.astype(np.float64))[np.arange(7), labels])
    with tf.GradientTape() as tape:
        variable = watched(tape, logits)
        nll = cross_entropies(variable, labels, smoothing)[:, 1]
    np.testing.assert_allclose(nll.numpy(), expected, rtol=1e-5)
    assert not np.any(tape.gradient(nll, variable))


@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_softmax_minus_soft_targets(smoothing, ids):
    logits, labels = example(11)
    upstream = np.arange(7, dtype=np.float32)
    with tf.GradientTape() as tape:
        variable = watched(tape, logits)
        loss = smoothed_cross_entropy(variable, labels.astype(ids), smoothing)
        total = tf.reduce_sum(upstream * loss)
    difference = softmax(logits) - soft_targets(labels, 11, smoothing)
    expected = upstream[:, None] * difference
    np.testing.assert_allclose(tape.gradient(total, variable), expected, atol=1e-5)


def test_gradient_is_the_slope_of_the_value():
    logits, labels = example(5, rows=2)
    with tf.GradientTape() as tape:
        variable = watched(tape, logits)
        total = tf.reduce_sum(smoothed_cross_entropy(variable, labels, 0.2))
    gradient = tape.gradient(total, variable).numpy()
    for row, column in np.ndindex(2, 5):
        ends = []
        for step in (-0.05, 0.05):
            moved = logits.copy()
            moved[row, column] += step
            ends.append(smoothed_cross_entropy(moved, labels, 0.2).numpy().sum())
        slope = (ends[1] - ends[0]) / 0.1
        np.testing.assert_allclose(gradient[row, column], slope, atol=1e-3)


def test_extreme_logits_stay_numbers():
    logits = np.array([[1e4, -1e4, 0], [-1e9, 0, 0]], np.float32)
    labels = np.array([1, 0], np.int32)
    with tf.GradientTape() as tape:
        variable = watched(tape, logits)
        loss = smoothed_cross_entropy(variable, labels, 0.1)
    assert np.isfinite(loss.numpy()).all()
    assert np.isfinite(tape.gradient(loss, variable).numpy()).all()


def test_the_least_loss_is_the_entropy_of_the_targets():
    """1.3676 for tensor2tensor's en-de vocabulary of 33,708 pieces."""
    np.testing.assert_allclose(entropy(33_708, 0.1), 1.3676, atol=1e-4)
    labels = np.array([3, 5], np.int32)
    perfect = np.log(soft_targets(labels, 9, 0.1)).astype(np.float32)
    actual = smoothed_cross_entropy(perfect, labels, 0.1).numpy()
    np.testing.assert_allclose(actual, entropy(9, 0.1), rtol=1e-5)


def test_sums_leave_out_padding():
    target = np.array([[5, 1, 0], [4, 7, 1]], np.int32)
    values = np.array([1, 2, 100, 4, 8, 16], np.float32)
    assert float(count_tokens(target)) == 5
    assert float(sum_over_tokens(values, target)) == 31
    assert float(count_tokens(np.zeros((2, 3), np.int32))) == 0


@pytest.mark.parametrize("case", range(5))
def test_equals_what_tensor2tensor_computed(case):
    """Up to a constant: it subtracts the entropy of the targets."""
    oracle = np.load(reference("t2t/oracle/misc/padded_cross_entropy.npz"))
    logits, labels, smoothing, expected, total, tokens = (
        oracle[f"case{case}/{name}"]
        for name in ("logits", "labels", "label_smoothing", "per_token", "num", "den")
    )
    vocab, smoothing = logits.shape[-1], float(smoothing)
    rows = logits.reshape(-1, vocab)
    per_token = smoothed_cross_entropy(rows, labels.reshape(-1), smoothing).numpy()
    is_token = (labels != 0).reshape(-1)
    actual = (per_token - entropy(vocab, smoothing)) * is_token
    np.testing.assert_allclose(actual, expected.reshape(-1) * is_token, atol=1e-4)
    assert float(count_tokens(labels)) == tokens
    summed = float(sum_over_tokens(per_token, labels))
    summed -= float(tokens) * entropy(vocab, smoothing)
    np.testing.assert_allclose(summed, total, rtol=1e-5)
