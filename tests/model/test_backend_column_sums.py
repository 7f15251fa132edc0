"""Gradients of biases and of layer normalization, with and without products."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.model.backend import Execution, add_bias, executed_by, scale_and_shift


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
