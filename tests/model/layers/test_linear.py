"""The feed-forward network."""

import numpy as np
from helpers.small_layers import built, normal

from t2t_keras.model.layers import FeedForward

SEED = np.array([11, 22], np.int32)


def test_feed_forward_drops_inner_activations():
    layer = built(FeedForward(4, 1000, dropout=0.25, name="ffn"), 4)
    layer.inner.kernel.assign(np.zeros((4, 1000)))
    layer.inner.bias.assign(np.ones(1000))
    layer.outer.kernel.assign(np.full((1000, 4), 0.75))
    output = layer(np.zeros((1, 1, 4), np.float32), seed=SEED).numpy()[0, 0]
    np.testing.assert_allclose(output, output.round(), atol=1e-3)
    assert (output == output[0]).all()
    assert 690 < output[0] < 810


def test_swish_is_x_times_its_sigmoid():
    layer = built(FeedForward(3, 5, activation="swish"), 3)
    w1, b1, w2, b2 = (normal(*w.shape, seed=i) for i, w in enumerate(layer.weights))
    layer.set_weights([w1, b1, w2, b2])
    x = normal(2, 4, 3, seed=9)
    inner = x @ w1 + b1
    expected = inner / (1 + np.exp(-inner)) @ w2 + b2
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_kernels_begin_as_glorot_uniform():
    layer = built(FeedForward(100, 300), 100)
    limit = np.sqrt(6 / 400)
    for part in (layer.inner, layer.outer):
        kernel = part.kernel.numpy()
        assert 0.98 * limit < np.abs(kernel).max() <= limit
        np.testing.assert_allclose(kernel.std(), limit / np.sqrt(3), rtol=0.03)
        assert (part.bias.numpy() == 0).all()
