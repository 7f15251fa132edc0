"""Windowed, unscaled and additive attention against NumPy, and in a model."""

import numpy as np
import pytest
import tensorflow as tf
from helpers.model_checks import VOCAB, ids, small_model
from helpers.numpy_transformer import softmax
from helpers.small_layers import D_K, HEADS, D, attention_layer, normal

from t2t_keras.model.layers import (
    CrossAttention,
    SelfAttention,
    WindowSelfAttention,
    attention_weights,
    padding_bias,
)


def full_attention(layer):
    """`SelfAttention` with a windowed layer's weights."""
    full = attention_layer(SelfAttention)
    full.set_weights(layer.get_weights())
    return full


def band(length, num_before, num_after):
    """bool [T, T]: whether query i may look at key j."""
    offsets = np.arange(length)[None, :] - np.arange(length)[:, None]
    return (-num_before <= offsets) & (offsets <= num_after)


# The window


@pytest.mark.parametrize("length", [1, 2, 3, 7, 12, 13])
@pytest.mark.parametrize(
    ("num_before", "num_after"),
    [(0, 0), (1, 1), (3, 3), (2, 0), (5, 0), (20, 20), (20, 0)],
)
def test_blocks_equal_a_band_mask_over_everything(length, num_before, num_after):
    """Outputs and all gradients, with a padded sentence in the batch."""
    layer = attention_layer(
        WindowSelfAttention, left_context=num_before, right_context=num_after
    )
    full = full_attention(layer)
    x = tf.constant(normal(2, length, D))
    lengths = np.array([length, max(length - 4, 1)])
    is_token = np.arange(length) < lengths[:, None]
    allowed = band(length, num_before, num_after) & is_token[:, None, :]
    reference = np.where(allowed, 0, -1e9).astype(np.float32)[:, None]
    bias = padding_bias(~is_token)
    probe = normal(2, length, D, seed=1) * is_token[..., None]

    def run(layer, bias):
        weights = [weight.value for weight in layer.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, *_ = layer.compute_attention(x, bias)
            total = tf.reduce_sum(y * probe)
        return y.numpy(), tape.gradient(total, [x, *weights])

    y, gradients = run(layer, bias)
    expected, expected_gradients = run(full, reference)
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y[is_token], expected[is_token], atol=1e-5)
    for actual, gradient in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(actual, gradient, atol=1e-5)


@pytest.mark.parametrize("num_after", [2, 0])
def test_the_call_of_a_window_takes_any_mask(num_after):
    layer = attention_layer(
        WindowSelfAttention, left_context=3, right_context=num_after
    )
    x = normal(2, 7, D)
    is_token = np.arange(7) < np.array([[7], [4]])
    allowed = band(7, 3, num_after) & is_token[:, None, :]
    expected = full_attention(layer)(x, allowed, return_attention_scores=True)
    for mask in (is_token[:, None], is_token[:, None, :] & is_token[:, :, None]):
        results = layer(x, mask, return_attention_scores=True)
        for actual, expected_array, axis in zip(results, expected, (1, 2), strict=True):
            rows = (
                np.moveaxis(np.asarray(y), axis, 1)[is_token]
                for y in (actual, expected_array)
            )
            np.testing.assert_allclose(*rows, atol=1e-5)
    causal = layer(x, use_causal_mask=True)
    expected = full_attention(layer)(x, band(7, 3, 0)[None])
    np.testing.assert_allclose(causal, expected, atol=1e-5)


@pytest.mark.parametrize("num_after", [8, 0])
def test_the_largest_tensor_grows_linearly_with_the_length(num_after):
    """No operation of the forward or backward pass makes n^2 values."""

    def largest(length):
        x = tf.TensorSpec([1, length, D])
        layer = attention_layer(
            WindowSelfAttention, left_context=8, right_context=num_after
        )

        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y, *_ = layer.compute_attention(x)
            return tape.gradient(y, x)

        graph = tf.function(gradient, autograph=False).get_concrete_function(x).graph
        outputs = [tensor for op in graph.get_operations() for tensor in op.outputs]
        shapes = [t.shape for t in outputs if t.shape.is_fully_defined()]
        assert len(shapes) > 0.9 * len(outputs)
        return max(shape.num_elements() for shape in shapes)

    small = largest(1000)
    large = largest(4000)
    assert large < 4.1 * small
    assert large < 4000 * 4 * 8 * HEADS


@pytest.mark.parametrize("num_after", [2, 0])
def test_dropout_in_the_window_matches_a_band_mask(num_after):
    layer = attention_layer(
        WindowSelfAttention,
        left_context=3,
        right_context=num_after,
        dropout=0.5,
        name="attention",
    )
    full = attention_layer(SelfAttention, dropout=0.5, name="attention")
    full.set_weights(layer.get_weights())
    x = normal(2, 13, D)
    seed = np.array([1, 2], np.int32)
    expected = full(x, band(13, 3, num_after)[None], seed=seed)
    np.testing.assert_allclose(layer(x, seed=seed), expected, atol=1e-5)


def test_a_window_is_scaled():
    window = {"left_context": 3, "right_context": 3}
    with pytest.raises(ValueError, match="must be 'scaled'"):
        attention_layer(WindowSelfAttention, **window, score="additive")


# The functions of 3.2.1


@pytest.mark.parametrize("cls", [SelfAttention, CrossAttention])
def test_unscaled_weights_are_the_plain_softmax(cls):
    query = normal(2, HEADS, 4, D_K)
    key = normal(2, HEADS, 6, D_K, seed=1)
    layer = attention_layer(cls, score="unscaled")
    weights = attention_weights(layer.score(query, key)).numpy()
    expected = softmax(np.einsum("bhtd,bhsd->bhts", query, key))
    np.testing.assert_allclose(weights, expected, atol=1e-6)


@pytest.mark.parametrize("cls", [SelfAttention, CrossAttention])
def test_additive_weights_are_bahdanaus(cls):
    layer = attention_layer(cls, score="additive")
    query = normal(2, HEADS, 4, D_K)
    key = normal(2, HEADS, 6, D_K, seed=1)
    is_padding = np.array([[0, 0, 0, 0, 1, 1], [0] * 6], bool)
    scores = layer.score(query, key)
    weights = attention_weights(scores, padding_bias(is_padding)).numpy()
    vectors = layer.score_vectors.numpy()  # [d_k, H]
    for b, h, t in np.ndindex(2, HEADS, 4):
        logits = [
            vectors[:, h] @ np.tanh(query[b, h, t] + key[b, h, s]) for s in range(6)
        ]
        logits = np.where(is_padding[b], -1e9, logits)
        np.testing.assert_allclose(weights[b, h, t], softmax(logits), atol=1e-6)


# In a model


def test_reach_of_the_window_in_encoder_and_decoder():
    """One layer: encoder |i - j| <= r / 2, decoder i - r < j <= i; the source whole."""
    network = small_model(num_layers=1, attention_window=4)
    source = ids(1, 9)
    target = ids(1, 9, seed=1)

    def influence(run, sequence):
        """[in, out]: which positions of the output each one of the input changes."""
        plain = run(sequence)
        changed = []
        for i in range(9):
            altered = sequence.copy()
            altered[0, i] = altered[0, i] % (VOCAB - 1) + 1
            changed.append(np.abs(run(altered) - plain).max((0, 2)) > 1e-6)
        return np.array(changed)

    seen = influence(lambda s: network.encode(s).numpy(), source)
    np.testing.assert_array_equal(seen.T, band(9, 2, 2))
    seen = influence(lambda t: network(source, t).numpy(), target)
    shifted = np.pad(band(9, 3, 0), ((0, 0), (0, 1)))[:, 1:]  # input j is target j - 1
    np.testing.assert_array_equal(seen.T, shifted)
    assert influence(lambda s: network(s, target).numpy(), source).all()
