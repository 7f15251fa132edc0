"""Feed-forward network, embedding, residual connection, normalisation, dropout."""

import keras
import numpy as np
import pytest
from numpy_transformer import layer_norm as numpy_layer_norm
from reference import reference
from small_layers import normal

from t2t_keras.model.layers import Dropout, Embedding, FeedForward, LayerNorm, Residual

SEED = np.array([11, 22], np.int32)


def built(layer, width=None):
    layer.build((None, None, width))
    return layer


# Feed-forward network


def test_feed_forward_drops_inner_activations():
    layer = built(FeedForward(4, 1000, dropout=0.25), 4)
    layer.inner.kernel.assign(np.zeros((4, 1000)))
    layer.inner.bias.assign(np.ones(1000))
    layer.outer.kernel.assign(np.full((1000, 4), 0.75))
    output = layer(np.zeros((1, 1, 4), np.float32), seed=SEED).numpy()[0, 0]
    np.testing.assert_allclose(output, output.round(), atol=1e-3)
    assert (output == output[0]).all()
    assert 690 < output[0] < 810


def test_kernels_begin_as_glorot_uniform():
    layer = built(FeedForward(100, 300), 100)
    limit = np.sqrt(6 / 400)
    for part in (layer.inner, layer.outer):
        kernel = part.kernel.numpy()
        assert 0.98 * limit < np.abs(kernel).max() <= limit
        np.testing.assert_allclose(kernel.std(), limit / np.sqrt(3), rtol=0.03)
        assert (part.bias.numpy() == 0).all()


# Embedding


@pytest.mark.parametrize("vocab", [7, 37, 64])
def test_logits_are_products_with_the_matrix_unscaled(vocab):
    """The matrix may be filled up for the product; nobody sees it."""
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


# Residual connection and layer normalisation


def residual(norm, dropout=0.0):
    layer = built(Residual(LayerNorm(8), dropout, norm == "pre"))
    layer.norm.gamma.assign(normal(8, seed=1))
    layer.norm.beta.assign(normal(8, seed=2))
    return layer


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_is_on_the_sublayer_and_not_on_the_residual(norm):
    """The mask, which seed and layer decide, multiplies what is added to x alone."""
    layer = residual(norm, dropout=0.5)
    x = normal(2, 30, 8)
    mask = layer.dropout(np.ones_like(x), seed=SEED).numpy()
    assert set(np.unique(mask)) == {0, 2}

    def normalised(y):
        return numpy_layer_norm(y, normal(8, seed=1), normal(8, seed=2))

    if norm == "post":
        expected = normalised(x + mask * x**2)
    else:
        expected = x + mask * normalised(x) ** 2
    actual = layer(x, layer.preprocess(x) ** 2, SEED).numpy()
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_epsilon_is_one_millionth_inside_the_root():
    """Of a vector with variance 1e-6 the norm is 1 / sqrt(2) of what it would be."""
    layer = built(LayerNorm(4))
    x = np.array([[1e-3, -1e-3, 1e-3, -1e-3]], np.float32)
    expected = x / np.sqrt(2e-6)
    np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-4)


def test_layer_norm_is_what_tensor2tensor_computed():
    oracle = np.load(reference("t2t/oracle/misc/layers.npz"))
    layer = built(LayerNorm(10))
    layer.gamma.assign(oracle["ln_scale"])
    layer.beta.assign(oracle["ln_bias"])
    actual = layer(oracle["ln_x"]).numpy()
    np.testing.assert_allclose(actual, oracle["ln_out"], atol=1e-5)


# Dropout


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
