"""The k largest values against NumPy's sort."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.top_k import top_k


@pytest.mark.parametrize("size", [1, 5, 64, 65, 1000])
@pytest.mark.parametrize("k", [1, 4, 50])
def test_equals_a_stable_sort(size, k):
    """With many equals, of which the first comes first, and many ruled out."""
    random = np.random.default_rng(size + k)
    values = random.integers(0, 20, (2, 3, size)).astype("float32")
    values[random.random(values.shape) < 0.5] = -np.inf
    k = min(k, size)
    largest, indices = top_k(tf.constant(values), tf.constant(k))
    expected = np.argsort(-values, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(largest, np.take_along_axis(values, expected, -1))
