"""Public layers and the model in Keras's hands, checked as Keras checks its layers."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import layer_checks
from helpers.layer_checks import (
    CASES,
    CHECKS,
    VOCAB,
    D,
    check_fit,
    check_policies,
    functional_model,
    global_policy,
    transformer,
)
from helpers.model_checks import gradients, ids, small_model

from t2t_keras import model as model_module
from t2t_keras.model import Embedding, EncoderLayer, LearnedPositions

# These take long; the fast tests try two dtype policies, and one layer's `fit`.
SLOW = {"policies", "fit"}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("check", sorted(CHECKS.keys() - SLOW))
def test_as_for_a_layer_of_keras(check, name):
    CHECKS[check](name)


@pytest.mark.parametrize("name", CASES)
def test_computes_with_a_dtype_policy(name):
    check_policies(name, ("float16", "mixed_bfloat16"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes_with_every_dtype_policy(name):
    check_policies(name)


def test_fits():
    check_fit("EncoderLayer")


@pytest.mark.slow
@pytest.mark.parametrize("name", [x for x in CASES if x != "Dropout"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_fits_with_and_without_xla(jit_compile, name):
    check_fit(name, jit_compile)


@pytest.mark.slow
def test_the_same_on_jax():
    """In particular, `stateless_call`, with which `fit` trains, draws dropout."""
    pytest.importorskip("jax", reason="needs the extra [backends]")
    run = subprocess.run(
        [sys.executable, layer_checks.__file__],
        env=os.environ
        | {"KERAS_BACKEND": "jax", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout == "" and run.returncode == 0


def test_every_public_layer_is_checked():
    public = {
        value
        for name in model_module.__all__
        if isinstance(value := getattr(model_module, name), type)
        and issubclass(value, keras.layers.Layer)
    }
    bases = {model_module.Layer, model_module.Block}
    assert public - bases <= {type(case.make()) for case in CASES.values()}


# Ids


def test_ids_may_be_floats_of_any_size():
    """Keras gives floats where it guesses; 16 bits would round ids above 2048."""
    tokens = np.array([[2049, 2051, 0]], np.int32)
    for policy in ("float32", "mixed_float16", "float16"):
        for layer in (Embedding(3000, D, dtype=policy), LearnedPositions(3000, D)):
            expected = np.array(layer(tokens))
            np.testing.assert_array_equal(layer(tokens.astype(np.float32)), expected)
            assert (expected[0, 0] != expected[0, 1]).any()
    mask = Embedding(3000, D).compute_mask(tokens.astype(np.float32))
    np.testing.assert_array_equal(mask, tokens != 0)
    network = small_model(vocab=3000, compute_dtype="float16", num_layers=1)
    pair = ids(2, 5, vocab=3000), ids(2, 4, seed=1, vocab=3000)
    np.testing.assert_array_equal(
        network([x.astype(np.float32) for x in pair]), network(pair)
    )


def test_ids_have_any_rank():
    shape = 2, 3, 4
    for layer in (Embedding(VOCAB, D), LearnedPositions(6, D)):
        y = layer(ids(*shape))
        assert y.shape == layer.compute_output_shape(shape) == (*shape, D)


def test_fit_on_two_devices_makes_the_updates_of_one():
    source, target = (ids(8, 5, seed=seed) for seed in range(2))

    def fitted():
        network = small_model(num_layers=1, dropout=0.0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        network.compile(keras.optimizers.SGD(0.5), loss, jit_compile=False)
        history = network.fit(
            (source, target), target, batch_size=4, shuffle=False, verbose=0
        )
        return history.history["loss"], network.get_weights()

    expected_loss, expected = fitted()
    # Collectives of several strategies in a process have the same keys.
    reduction = tf.distribute.ReductionToOneDevice()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], reduction).scope():
        loss, weights = fitted()
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    for actual, weight in zip(weights, expected, strict=True):
        np.testing.assert_allclose(actual, weight, atol=1e-5)


# What is frozen


def trainable_paths(network):
    return [weight.path for weight in network.trainable_weights]


def test_frozen_layers_stay_frozen(tmp_path):
    """In the loaded model and the clone; the weights are those chosen here."""
    network = small_model()
    network.encoder.trainable = False
    network.encoder.layers[1].feed_forward.trainable = True
    network.decoder.layers[0].cross_attention.query_projection.trainable = False
    expected = trainable_paths(network)
    assert not any("query/" in path and "decoder/layer_0" in path for path in expected)
    network.save(tmp_path / "model.keras")
    for other in (
        keras.saving.load_model(tmp_path / "model.keras"),
        keras.models.clone_model(network),
    ):
        assert trainable_paths(other) == expected
    network.trainable = False
    assert not keras.models.clone_model(network).trainable_weights
    other = type(network).from_config(transformer().get_config())
    assert len(other.trainable_weights) == len(other.weights)


@pytest.mark.parametrize("name", ["EncoderLayer", "Decoder"])
def test_inner_layers_stay_frozen_in_a_functional_model(name, tmp_path):
    network = functional_model(name)
    layer = network.layers[-1]
    block = layer if isinstance(layer, EncoderLayer) else layer.layers[0]
    block.feed_forward.trainable = False
    block.self_attention.trainable = False
    frozen = len(block.feed_forward.weights) + len(block.self_attention.weights)
    count = len(network.weights) - frozen
    assert len(network.trainable_weights) == count
    network.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.trainable_weights) == count
    assert len(keras.models.clone_model(network).trainable_weights) == count


# A `floatx` of the user


@pytest.mark.parametrize("floatx", ["float16", "float64"])
def test_the_model_does_not_depend_on_floatx(floatx):
    """Losses, their gradients, packed rows' masks and decoding are equal bit by bit."""
    pair = ids(2, 5), ids(2, 4)

    def results():
        network = small_model(num_layers=1, attention_window=2, dropout=0.1)
        seed = np.array([1, 2], np.int32)
        losses = gradients(network, lambda: network.training_losses(*pair, seed))
        return [np.array(network(*pair)), *losses, network.generate(pair[0])]

    expected = results()
    before = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        with global_policy(floatx):
            actual = results()
    finally:
        keras.config.set_floatx(before)
    for value, expected_value in zip(actual, expected, strict=True):
        assert value.dtype == expected_value.dtype
        np.testing.assert_array_equal(value, expected_value)
