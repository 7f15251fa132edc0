"""Residual connection and layer normalisation."""

import numpy as np
import pytest
from helpers.numpy_transformer import layer_norm as numpy_layer_norm
from helpers.reference import reference
from helpers.small_layers import built, normal

from t2t_keras.model.execution import Execution, executed_by
from t2t_keras.model.layers import LayerNorm, Residual

SEED = np.array([11, 22], np.int32)


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


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "mixed_float16", "bfloat16", "float32"])
def test_large_numbers_are_normalized_in_float32(dtype, is_fused):
    """The square of 300 is beyond float16."""
    x = (normal(2, 5, 16) * 300 + 5).astype(np.float16)
    wide = x.astype(np.float64)
    mean = wide.mean(-1, keepdims=True)
    expected = (wide - mean) / wide.std(-1, keepdims=True)
    with executed_by(Execution(is_fused=is_fused)):
        actual = LayerNorm(16, dtype=dtype)(x)
    atol = 0.02 if dtype == "bfloat16" else 0.002
    np.testing.assert_allclose(np.array(actual, np.float64), expected, atol=atol)
