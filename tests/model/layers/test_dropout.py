"""Dropout: its rate, its scale and its masks."""

import keras
import numpy as np
import pytest

from t2t_keras.model.layers import Dropout

SEED = np.array([11, 22], np.int32)


def built(layer, width=None):
    layer.build((None, None, width))
    return layer


def dropout(rate, name="dropout"):
    return built(Dropout(rate, name=name))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.7])
def test_dropout_rate_and_scale(rate):
    n = 100_000
    y = dropout(rate)(np.ones(n, np.float32), seed=SEED).numpy()
    is_kept = y != 0
    np.testing.assert_allclose(y[is_kept], 1 / (1 - rate), rtol=1e-6)
    # Four standard deviations of a binomial count.
    assert abs(is_kept.mean() - (1 - rate)) < 4 * np.sqrt(rate * (1 - rate) / n)


@pytest.mark.parametrize("seed", [[12, 22], [11, 23], [22, 11]])
def test_another_seed_gives_an_independent_mask(seed):
    x = np.ones(10_000, np.float32)
    layer = dropout(0.5)
    mask = layer(x, seed=SEED).numpy() != 0
    other_mask = layer(x, seed=np.array(seed, np.int32)).numpy() != 0
    assert abs((mask == other_mask).mean() - 0.5) < 0.02


def test_dropout_scale_is_exact_enough_in_bfloat16():
    """1 / 0.9, and not this number in bfloat16, which is 0.0017 less."""
    layer = built(Dropout(0.1, dtype="bfloat16"))
    x = keras.ops.cast(1 + np.random.default_rng(0).random(100_000), "bfloat16")
    y = layer(x, seed=SEED)
    assert y.dtype == "bfloat16"
    x, y = (keras.ops.cast(array, "float32").numpy() for array in (x, y))
    assert abs(y[y > 0].sum() / x[y > 0].sum() - 1 / 0.9) < 0.0003
