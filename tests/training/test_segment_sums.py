"""Sums by id without a scatter, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.training.segment_sums import segment_sums


@pytest.mark.parametrize("rows", [1, pytest.param(2, marks=pytest.mark.slow), 37, 9000])
def test_sums_match_numpy(rows):
    """Ids as in text: a few are frequent, many occur once or never."""
    rng = np.random.default_rng(rows)
    ids = np.minimum(rng.zipf(1.3, rows) - 1, 700).astype(np.int32)
    values = rng.normal(size=(rows, 5)).astype(np.float32)
    exact = np.zeros([701, 5])
    np.add.at(exact, ids, values)
    sizes = np.zeros([701, 5])
    np.add.at(sizes, ids, np.abs(values))
    sums = tf.function(lambda v, i: segment_sums(v, i, 701), jit_compile=True)
    actual = sums(tf.constant(values), tf.constant(ids)).numpy()
    # The error of 16 additions in a row; there are at most as many levels.
    assert (np.abs(actual - exact) <= 16 * 2**-24 * sizes).all()
    assert not actual[sizes == 0].any()


def test_one_id_may_have_all_rows():
    """More than a node of the last level has."""
    values = tf.reshape(tf.range(2.0**14), [-1, 1])
    sums = tf.function(lambda v, i: segment_sums(v, i, 3), jit_compile=True)
    actual = sums(values, tf.ones([2**14], tf.int64)).numpy()[:, 0]
    np.testing.assert_allclose(actual, [0, 2**13 * (2**14 - 1), 0], rtol=1e-7)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_no_rows_have_sums_of_zero(jit_compile):
    arguments = tf.zeros([0, 5]), tf.zeros([0], tf.int64), 3
    compiled = tf.function(segment_sums, jit_compile=jit_compile)
    for sums in (segment_sums, compiled):
        np.testing.assert_array_equal(sums(*arguments), np.zeros([3, 5], np.float32))
