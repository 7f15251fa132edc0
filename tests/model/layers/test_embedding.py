"""Embeddings, the logits of the same matrix, and positional encodings."""

import keras
import numpy as np
import pytest
from helpers.numpy_transformer import sinusoids as numpy_sinusoids
from helpers.small_layers import built, normal

from t2t_keras.model.layers import Embedding, LearnedPositions, sinusoids


@pytest.mark.parametrize("vocab", [7, 37, 64])
def test_logits_are_products_with_the_matrix_unscaled(vocab):
    """The matrix may be padded for the product, invisibly."""
    layer = built(Embedding(vocab, 16))
    x = normal(2, 3, 16)
    expected = x @ layer.table.numpy().T
    np.testing.assert_allclose(layer.logits(x).numpy(), expected, atol=1e-5)


def test_embedding_begins_as_a_normal_of_deviation_one_over_sqrt_d():
    keras.utils.set_random_seed(0)
    layer = built(Embedding(2000, 64))
    table = layer.table.numpy()
    n = table.size
    assert abs(table.mean()) < 4 * 64**-0.5 / np.sqrt(n)
    np.testing.assert_allclose(table.std(), 64**-0.5, rtol=4 / np.sqrt(2 * n))
    # Normal and not uniform or truncated: its fourth moment, and its far values.
    kurtosis = (table**4).mean() / table.var() ** 2
    np.testing.assert_allclose(kurtosis, 3, atol=4 * np.sqrt(24 / n))
    assert np.abs(table).max() > 3.5 * 64**-0.5


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_are_the_formula(d_model):
    actual = sinusoids(np.arange(50), d_model).numpy()
    np.testing.assert_allclose(actual, numpy_sinusoids(50, d_model), atol=1e-5)


def test_learned_positions_look_up_and_repeat_the_last_row():
    keras.utils.set_random_seed(0)
    layer = LearnedPositions(100, 64)
    layer.build(None)
    table = layer.table.numpy()
    np.testing.assert_allclose(table.std(), 64**-0.5, rtol=0.05)
    actual = layer(np.array([3, 0, 99, 100, 5000])).numpy()
    np.testing.assert_array_equal(actual, table[[3, 0, 99, 99, 99]])
