"""Formulas that depend on how a graph is executed."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.model.execution import (
    Execution,
    add_bias,
    executed_by,
    scale_and_shift,
)
from t2t_keras.model.layers.attention import SelfAttention
from t2t_keras.model.layers.linear import FeedForward
from t2t_keras.model.layers.residual import LayerNorm

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


def attention(width):
    """With biases, and keys and values of different sizes."""
    return SelfAttention(width, 2, 4, 5, causal=True, use_bias=True)


@pytest.mark.parametrize(
    ("make", "mean", "rtol", "atol"),
    [
        (LayerNorm, 0.0, 1e-4, 2e-5),
        (LayerNorm, 100.0, 1e-4, 2e-5),
        (lambda width: FeedForward(width, 8), 0.0, 1e-6, 1e-6),
        (attention, 0.0, 1e-4, 1e-5),
    ],
)
def test_formulas_for_xla_change_neither_value_nor_gradient(make, mean, rtol, atol):
    rng = np.random.default_rng(0)
    layer = make(6)
    layer.build((None, None, 6))
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    x = rng.normal(mean, 2.0, size=(3, 4, 6)).astype(np.float32)
    if isinstance(layer, FeedForward):  # relu of 0
        layer.inner.bias.assign(tf.zeros([8]))
        x[0] = 0.0
    plain, fused = (value_and_gradients(layer, x, e) for e in (Execution(), FUSED))
    for ours, expected in zip(fused, plain, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=rtol, atol=atol)


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
