"""Blocks, and the first of the largest values, against NumPy's sort."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.candidates import divide, first_of_largest


@pytest.mark.parametrize("size", [1, 64, 65, 1000])
def test_the_last_block_is_filled_up(size):
    values = np.random.default_rng(size).random((2, 3, size), np.float32)
    blocks = divide(tf.constant(values), -np.inf).numpy()
    assert blocks.shape == (2, 3, -(-size // 64), 64)
    flat = blocks.reshape(2, 3, -1)
    np.testing.assert_array_equal(flat[..., :size], values)
    assert (flat[..., size:] == -np.inf).all()


@pytest.mark.parametrize("k", [1, 4, 50])
def test_the_first_of_equal_values_counts(k):
    """Also where many are ruled out."""
    random = np.random.default_rng(k)
    values = random.integers(0, 20, (3, 1000)).astype("float32")
    values[random.random(values.shape) < 0.99] = -np.inf
    indices = first_of_largest(tf.constant(values), tf.constant(k))
    expected = np.sort(np.argsort(-values, axis=1, kind="stable")[:, :k])
    np.testing.assert_array_equal(indices, expected)
