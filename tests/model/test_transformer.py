"""The model against its equations in NumPy, and the properties that decoding needs."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.model_checks import check_equations, ids, pad
from helpers.model_checks import small_model as model

from t2t_keras.model.backend import inner_layers
from t2t_keras.model.layers import Dropout

SEED = np.array([5, 6], np.int32)
NORMS = ("post", "pre")
POSITIONS = ("sinusoidal", "learned")


# The forward pass


@pytest.mark.parametrize(
    ("options", "target_vocab"),
    [
        ({"norm": norm, "position": position}, None)
        for norm, position in itertools.product(NORMS, POSITIONS)
    ]
    + [
        ({"d_k": 3, "d_v": 5}, None),
        ({"num_heads": 3, "d_k": 4, "d_v": 2, "norm": "pre"}, None),
        ({"share_embeddings": False}, None),
        ({}, 11),
        ({"share_embeddings": False}, 11),
    ],
    ids=str,
)
def test_logits_are_the_equations(options, target_vocab):
    check_equations(model(target_vocab=target_vocab, **options))


# What a position may depend on


@pytest.mark.parametrize("norm", NORMS)
def test_a_row_of_padding_stays_finite_and_changes_no_other(norm):
    network = model(norm=norm, dropout=0.1, attention_dropout=0.1)
    source = pad([[3, 4, 5], []], 3)
    target = pad([[6, 7], []], 2)
    weights = [weight.value for weight in network.trainable_variables]
    with tf.GradientTape() as tape:
        logits = network(source, target, seed=SEED)
        total = tf.reduce_sum(tf.square(logits))
    for gradient in tape.gradient(total, weights):
        assert np.isfinite(tf.convert_to_tensor(gradient).numpy()).all()
    logits = network(source, target).numpy()
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(
        logits[:1], network(source[:1], target[:1]).numpy(), atol=1e-5
    )


# Decoding step by step


@pytest.mark.parametrize(("window", "needed"), [(0, 6), (3, 2)])
def test_tokens_that_no_hypothesis_attends_to_are_dropped(window, needed):
    """All beams continue the same one: one token for each position is left."""
    network = model(attention_window=window)
    source = ids(2, 5)
    cache = network.start_cache(network.encode(source), source, 3)
    for t in range(6):
        _, cache = network.decode_step(np.full((2, 3), t, np.int32), t, cache)
        cache = network.reorder_cache(cache, np.full((2, 3), t % 3, np.int32))
    assert cache.positions.shape == (2, 3, 18)
    cache = network.select_rows(cache, np.arange(2, dtype=np.int32))
    assert cache.positions.shape == (2, 3, needed)
    assert cache.layers[0].tokens.key.shape[2] == needed


# Dropout


def dropouts(network):
    return [layer for layer in inner_layers(network) if isinstance(layer, Dropout)]


def test_dropout_is_where_the_rates_say():
    """Each layer has another path, so another mask."""
    network = model(dropout=0.1, attention_dropout=0.2, ffn_dropout=0.3)
    rates = {layer.path: layer.rate for layer in dropouts(network)}
    # 2 sums of embeddings, 2 * 2 + 2 * 3 sub-layers; 2 * (1 + 2) attentions; 4 FFNs.
    assert sorted(rates.values()) == [0.1] * 12 + [0.2] * 6 + [0.3] * 4
    for path, rate in rates.items():
        if "residual" in path or path.endswith(("source_dropout", "target_dropout")):
            assert rate == 0.1
        else:
            assert rate == (0.3 if "feed_forward" in path else 0.2)


@pytest.mark.parametrize("norm", NORMS)
def test_every_dropout_layer_is_used(norm):
    """With all rates but one at 0, that one is seen in the logits."""
    network = model(num_layers=1, norm=norm, dropout=0.0)
    source = ids(2, 5)
    target = ids(2, 7, seed=1)
    plain = network(source, target).numpy()
    for layer in dropouts(network):
        layer.rate = 0.5
        assert np.abs(network(source, target, seed=SEED) - plain).max() > 1e-3
        layer.rate = 0.0
    np.testing.assert_array_equal(network(source, target, seed=SEED), plain)


# Precision, and the model as a Keras object


def test_logits_are_float32_under_bfloat16():
    network = model(compute_dtype="bfloat16")
    source = ids(4, 9)
    target = ids(4, 8, seed=1)
    logits = network(source, target)
    assert logits.dtype == "float32"
    cache = network.start_cache(network.encode(source), source, 1)
    step, cache = network.decode_step(np.zeros((4, 1), np.int32), 0, cache)
    assert step.dtype == "float32"
    # The cache is not: it takes most of a search's memory.
    dtypes = {tensor.dtype.name for tensor in keras.tree.flatten(cache.layers)}
    assert dtypes == {"bfloat16"}
    np.testing.assert_allclose(step.numpy()[:, 0], logits.numpy()[:, 0], atol=0.05)


def test_bfloat16_normalises_in_float32():
    """Each norm's output has mean 0 and variance 1, to more digits than bfloat16's."""
    network = model(compute_dtype="bfloat16")
    network.encoder.layers[-1].feed_forward_residual.norm.gamma.assign(np.ones(8))
    network.encoder.layers[-1].feed_forward_residual.norm.beta.assign(np.zeros(8))
    memory = network.encode(ids(2, 5))
    assert memory.dtype == "float32"
    np.testing.assert_allclose(memory.numpy().mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(memory.numpy().var(-1), 1, atol=1e-4)


def test_dropout_is_on_the_sums_of_embeddings_and_positions():
    """Where all of a sum is dropped, neither its ids nor its positions are left."""
    network = model(dropout=0.0)
    target = ids(1, 7, seed=1)
    network.source_dropout.rate = 1 - 1e-12
    outputs = network(ids(1, 5), target, seed=SEED).numpy()
    longer = network(ids(1, 9, seed=2), target, seed=SEED).numpy()
    np.testing.assert_allclose(longer, outputs, atol=1e-5)
    network.source_dropout.rate = 0.0
    network.target_dropout.rate = 1 - 1e-12
    logits = network(ids(1, 5), target, seed=SEED).numpy()
    np.testing.assert_allclose(logits - logits[:, :1], 0, atol=1e-5)
