"""Operations that depend on how a graph is executed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.backend_program import results
from helpers.errors import refused

from t2t_keras.model.backend import (
    Execution,
    add_bias,
    current_execution,
    executed_by,
    scale_and_shift,
)
from t2t_keras.model.layers.attention import SelfAttention
from t2t_keras.model.layers.linear import FeedForward
from t2t_keras.model.layers.residual import LayerNorm

PROGRAM = Path(__file__).parents[1] / "helpers" / "backend_program.py"


@pytest.fixture(scope="module")
def expected():
    return results()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_results_are_tensorflows(backend, expected, tmp_path):
    """PyTorch is not tested for decoding and the losses of the trainer."""
    pytest.importorskip(backend, reason="needs the extra [backends]")
    subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "found.npz"],
        env=os.environ | {"KERAS_BACKEND": backend},
        check=True,
    )
    actual = np.load(tmp_path / "found.npz")
    names = set(expected)
    if backend == "torch":
        names = {x for x in names if "decoded" not in x and "training_gr" not in x}
    assert set(actual) == names
    for name in actual:
        if "drop" not in name:
            atol = 1e-4 if "gradient" in name or name == "fit" else 1e-5
            np.testing.assert_allclose(
                actual[name], expected[name], atol=atol, err_msg=name
            )
    assert actual["fit"][-1] < actual["fit"][0] - 0.1
    assert np.isfinite(actual["fit with dropout"]).all()
    difference = np.abs(actual["dropped"] - actual["dropped again"])
    assert difference.max() > 0.1


def test_rooms_that_need_tensorflow_say_so(monkeypatch, tmp_path):
    import keras

    from t2t_keras import load

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    refused("set KERAS_BACKEND=tensorflow", load, tmp_path)


FUSED = Execution(is_fused=True)


def value_and_gradients(layer, x, execution):
    """Of the sum of the output times an array that differs at every element."""
    x = tf.constant(x)
    with tf.GradientTape() as tape, executed_by(execution):
        tape.watch(x)
        y = layer(x)
        factors = np.sin(np.arange(y.shape.num_elements())).reshape(y.shape)
        loss = tf.reduce_sum(y * factors.astype(np.float32))
    return [y, *tape.gradient(loss, [x, *layer.trainable_variables])]


@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_layer_normalization(mean):
    rng = np.random.default_rng(0)
    layer = LayerNorm(6)
    layer.build((None, None, 6))
    layer.set_weights(rng.normal(size=(2, 6)))
    x = rng.normal(mean, 2.0, size=(3, 4, 6)).astype(np.float32)
    results = [value_and_gradients(layer, x, e) for e in (Execution(), FUSED)]
    for plain, fused in zip(*results, strict=True):
        np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=2e-5)


def test_feed_forward():
    """Also where relu's input is 0."""
    rng = np.random.default_rng(0)
    layer = FeedForward(3, 8)
    layer.build((None, None, 3))
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    x = rng.normal(size=(3, 4, 3)).astype(np.float32)
    layer.inner.bias.assign(tf.zeros([8]))
    x[0] = 0.0
    results = [value_and_gradients(layer, x, e) for e in (Execution(), FUSED)]
    for plain, fused in zip(*results, strict=True):
        np.testing.assert_allclose(fused, plain, rtol=1e-6, atol=1e-6)


def test_self_attention():
    """Also with biases and with keys and values of different sizes."""
    rng = np.random.default_rng(0)
    layer = SelfAttention(6, 2, key_size=4, value_size=5, causal=True, use_bias=True)
    layer.build((None, None, 6))
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    x = rng.normal(size=(3, 4, 6)).astype(np.float32)
    results = [value_and_gradients(layer, x, e) for e in (Execution(), FUSED)]
    for plain, fused in zip(*results, strict=True):
        np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


def test_an_execution_ends_with_its_block():
    with executed_by(FUSED):
        assert current_execution() is FUSED
    assert not current_execution().is_fused


@pytest.mark.parametrize("function", [add_bias, scale_and_shift])
@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 5)])
def test_products_change_neither_value_nor_gradient(function, shape):
    rng = np.random.default_rng(0)
    count = 1 if function is add_bias else 2
    vectors = [tf.constant(rng.normal(size=5), tf.float32) for _ in range(count)]
    arguments = [tf.constant(rng.normal(size=shape), tf.float32), *vectors]
    results = []
    for is_on in (False, True):
        execution = Execution(has_column_products=is_on)
        with tf.GradientTape() as tape, executed_by(execution):
            tape.watch(arguments)
            y = function(*arguments)
            loss = tf.reduce_sum(tf.sin(y))
        results.append([y, *tape.gradient(loss, arguments)])
    for plain, by_product in zip(*results, strict=True):
        np.testing.assert_allclose(by_product, plain, rtol=1e-5, atol=1e-6)


def test_the_choice_ends_with_the_block():
    def operations():
        graph = (
            tf.function(lambda x: tf.gradients(add_bias(x, tf.ones([5])), x))
            .get_concrete_function(tf.TensorSpec([None, 5]))
            .graph
        )
        return {operation.type for operation in graph.get_operations()}

    with executed_by(Execution(has_column_products=True)):
        assert "IdentityN" in operations()
    assert "IdentityN" not in operations()
