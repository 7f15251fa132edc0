"""Positional encodings: closed forms."""

import keras
import numpy as np
import pytest
from helpers.numpy_transformer import sinusoids as numpy_sinusoids

from t2t_keras.model.layers import LearnedPositions, sinusoids


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
