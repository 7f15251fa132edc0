"""Attention against the paper's formula, head by head, in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.optimized_graph import optimized_nodes
from helpers.reference import reference
from helpers.small_layers import D_K, D_V, HEADS, D, attention_layer, normal

from t2t_keras.model.layers import (
    CrossAttention,
    SelfAttention,
    attention_weights,
    causal_bias,
    padding_bias,
    scaled_dot_product,
)


def test_softmax_is_float32_under_bfloat16():
    query, key = (
        keras.ops.cast(normal(1, 1, 9, 8, seed=s), "bfloat16") for s in (0, 1)
    )
    weights = attention_weights(scaled_dot_product(query, key))
    assert weights.dtype == "float32"
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, atol=1e-6)


def test_graph_optimizer_leaves_the_product_unfused():
    """On CPUs that have it, oneDNN's fused kernel takes many times as long."""

    @tf.function(autograph=False)
    def fusible(query, key, bias):
        return tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * 0.5 + bias)

    @tf.function(autograph=False)
    def weights(query, key, bias):
        return attention_weights(scaled_dot_product(query, key), bias)

    shapes = (2, 2, 5, 4), (2, 2, 3, 4), (2, 1, 5, 3)
    inputs = [tf.TensorSpec(shape) for shape in shapes]

    def is_fused(function):
        nodes = optimized_nodes(function, *inputs)
        return "BatchMatMulV2" not in {node.op for node in nodes}

    if not is_fused(fusible):
        pytest.skip("TensorFlow runs without oneDNN")
    assert not is_fused(weights)


def test_every_projection_of_attention_has_its_own_glorot_initializer():
    keras.utils.set_random_seed(0)
    d_model = 64
    queries = 4 * 16
    values = 4 * 48
    expected = {
        "query_key_value": (queries, queries, values),
        "query": (queries,),
        "key_value": (queries, values),
        "output": (d_model,),
        "score": (1, 1, 1, 1),
    }
    for cls in (SelfAttention, CrossAttention):
        layer = cls(d_model, 4, 16, 48, "additive")
        layer.build((None, None, d_model))
        for weight in layer.weights:
            *_, parent, name = weight.path.split("/")
            widths = expected[name if name == "score" else parent]
            fan_in, fan_out = weight.shape
            assert fan_out == sum(widths)
            boundaries = np.cumsum(widths)[:-1]
            shares = []
            for block in np.split(weight.numpy(), boundaries, axis=1):
                limit = np.sqrt(6 / (fan_in + block.shape[1]))
                shares.append(np.abs(block).max() / limit)
            assert max(shares) <= 1
            # The blocks of the score are single vectors of 16 numbers.
            assert max(shares) > 0.93 if name == "score" else min(shares) > 0.98


def test_equals_what_tensor2tensor_computed():
    oracle = np.load(reference("t2t/oracle/misc/layers.npz"))
    query, key, value = (oracle[f"att_{name}"] for name in "qkv")
    is_padding = oracle["att_padding"].astype(bool)
    # Its function leaves the scale to the caller: undo ours.
    query = query * np.float32(np.sqrt(query.shape[-1]))
    for bias, expected in [
        (padding_bias(is_padding), oracle["att_out"]),
        (causal_bias(5), oracle["att_causal_out"]),
    ]:
        actual = attention_weights(scaled_dot_product(query, key), bias).numpy() @ value
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    np.testing.assert_array_equal(padding_bias(is_padding), oracle["bias_padding"])
    np.testing.assert_array_equal(causal_bias(4), oracle["bias_causal"])


def test_dropout_is_on_the_weights():
    """With equal values of one, the output counts the weights that are left, scaled."""
    layer = attention_layer(SelfAttention, dropout=0.5, name="attention")
    kernel = np.zeros((D, HEADS * (2 * D_K + D_V)), np.float32)
    kernel[0, 2 * HEADS * D_K :] = 1
    layer.projection.kernel.assign(kernel)
    layer.output_projection.kernel.assign(np.eye(HEADS * D_V, D))
    x = np.ones((1, 8, D), np.float32)  # queries and keys are 0: 8 weights of 1/8
    counts = (
        layer.compute_attention(x, None, seed=np.array([1, 2], np.int32))[0].numpy() * 4
    )
    per_head = counts[..., : HEADS * D_V].reshape(8, HEADS, D_V)
    np.testing.assert_allclose(per_head, per_head.round(), atol=1e-5)
    assert per_head.min() < 4 < per_head.max() < 9
    assert (per_head[:, :, :1] == per_head).all()  # one mask for all of a head
    assert not (per_head[:, :1] == per_head).all()  # and another for each head
