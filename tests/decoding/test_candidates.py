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
    parents, tokens, log_probs = top_candidates(alive, tf.constant(logits), True)
    totals = np.log(np.exp(logits).sum(axis=2, keepdims=True))
    expected = (alive[:, :, None] + logits - totals).reshape(20, -1)
    order = np.argsort(-expected)[:, : 2 * beams if beams > 1 else 1]
    np.testing.assert_array_equal(parents, order // vocab_size)
    np.testing.assert_array_equal(tokens, order % vocab_size)
    best = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(log_probs, best, atol=1e-5)
