"""The continuations among which beam search chooses, against sorting in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.candidates import top_candidates


@pytest.mark.parametrize("ulps", [0, 2])
@pytest.mark.parametrize(("beams", "vocab_size"), [(1, 9), (3, 5), (5, 11), (9, 40)])
def test_candidates_are_the_best_of_all_continuations(
    beams, vocab_size, ulps, monkeypatch
):
    """Also where a division errs by 2 ulp, as that of XLA on a GPU may."""
    divide = tf.Tensor.__truediv__

    def inexact(x, y):
        quotient = divide(x, y)
        for _ in range(ulps):
            quotient = tf.math.nextafter(quotient, tf.zeros_like(quotient))
        return quotient

    monkeypatch.setattr(tf.Tensor, "__truediv__", inexact)
    random = np.random.default_rng(beams)
    alive = random.normal(size=(20, beams)).astype(np.float32)
    logits = random.normal(size=(20, beams, vocab_size)).astype(np.float32)
    parents, tokens, log_probs = top_candidates(
        alive, tf.constant(logits), np.ones(vocab_size, bool)
    )
    totals = np.log(np.exp(logits).sum(axis=2, keepdims=True))
    expected = (alive[:, :, None] + logits - totals).reshape(20, -1)
    order = np.argsort(-expected)[:, : 2 * beams if beams > 1 else 1]
    np.testing.assert_array_equal(parents, order // vocab_size)
    np.testing.assert_array_equal(tokens, order % vocab_size)
    best = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(log_probs, best, atol=1e-5)


@pytest.mark.parametrize("vocab_size", [5, 64, 65, 1000])
@pytest.mark.parametrize("beams", [1, 2, 25])
def test_equal_continuations_keep_their_order(beams, vocab_size):
    """Beams and many tokens are equal, and half of the tokens are excluded."""
    random = np.random.default_rng(vocab_size)
    logits = random.integers(0, 20, (3, 1, vocab_size)).astype(np.float32)
    logits = np.repeat(logits, beams, axis=1)
    allowed = random.random((3, beams, vocab_size)) < 0.5
    candidates = top_candidates(np.zeros((3, beams), np.float32), logits, allowed)
    values = np.where(allowed, logits, -np.inf).reshape(3, -1)
    order = np.argsort(-values, kind="stable")[:, : 2 * beams if beams > 1 else 1]
    is_allowed = np.take_along_axis(values, order, axis=1) > -np.inf
    np.testing.assert_array_equal(candidates.log_probs > -np.inf, is_allowed)
    assert (candidates.tokens < vocab_size).numpy().all()
    actual = candidates.parents * vocab_size + candidates.tokens
    np.testing.assert_array_equal(actual[is_allowed], order[is_allowed])


def test_excluded_tokens_keep_their_probability():
    """Also one that is e^200 times as likely as all others."""
    logits = np.array([[[250.0, 50.0, 49.0]]], np.float32)
    allowed = np.array([False, True, True])
    candidates = top_candidates(np.zeros((1, 1), np.float32), logits, allowed)
    assert candidates.tokens.numpy().tolist() == [[1]]
    np.testing.assert_allclose(candidates.log_probs, [[-200.0]])
