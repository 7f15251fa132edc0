"""Attention against the paper's formula, head by head, in NumPy."""

import keras
import numpy as np
import pytest
from numpy_transformer import attention, multi_head, softmax
from reference import reference
from small_layers import D_K, D_V, HEADS, D, attention_layer, normal

from t2t_keras.model.layers import (
    BlockGlorot,
    CrossAttention,
    Linear,
    SelfAttention,
    attention_weights,
    causal_bias,
    padding_bias,
    scaled_dot_product,
)


def test_weights_are_the_scaled_softmax():
    query, key = normal(2, 3, 4, 16), normal(2, 3, 6, 16, seed=1)
    weights = attention_weights(scaled_dot_product(query, key)).numpy()
    expected = softmax(np.einsum("bhtd,bhsd->bhts", query, key) / 4)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_weights_of_padding_are_zero_and_the_rest_add_up_to_one():
    query, key = normal(2, 1, 3, 4), normal(2, 1, 5, 4, seed=1)
    is_padding = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
    weights = attention_weights(
        scaled_dot_product(query, key), padding_bias(is_padding)
    ).numpy()
    assert (weights[0, :, :, 3:] == 0).all()
    alone = attention_weights(scaled_dot_product(query[:1], key[:1, :, :3])).numpy()
    np.testing.assert_allclose(weights[:1, :, :, :3], alone, atol=1e-6)
    assert (weights[1] > 0).all()


def test_weights_of_the_future_are_zero():
    query, key = normal(1, 2, 5, 4), normal(1, 2, 5, 4, seed=1)
    weights = attention_weights(scaled_dot_product(query, key), causal_bias(5)).numpy()
    assert (weights[:, :, *np.triu_indices(5, 1)] == 0).all()
    assert (weights[:, :, *np.tril_indices(5)] > 0).all()


def test_a_row_of_padding_only_stays_a_number():
    bias = padding_bias(np.ones((1, 4), bool))
    weights = attention_weights(
        scaled_dot_product(normal(1, 1, 2, 4), normal(1, 1, 4, 4)), bias
    )
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, atol=1e-6)


def test_softmax_is_float32_under_bfloat16():
    query, key = (
        keras.ops.cast(normal(1, 1, 9, 8, seed=s), "bfloat16") for s in (0, 1)
    )
    weights = attention_weights(scaled_dot_product(query, key))
    assert weights.dtype == "float32"
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, atol=1e-6)


def test_self_attention_is_the_formula_head_by_head():
    layer = attention_layer(SelfAttention)
    x = normal(2, 7, D)
    kernel = layer.projection.kernel.numpy()
    query, key, value = np.split(kernel, [HEADS * D_K, 2 * HEADS * D_K], axis=1)
    assert value.shape == (D, HEADS * D_V)
    output = layer.output_projection.kernel.numpy()
    actual, _ = layer(x, causal_bias(7))
    allowed = np.tril(np.ones((7, 7), bool))
    for row in range(2):
        projected = (x[row] @ kernel for kernel in (query, key, value))
        expected = multi_head(*projected, allowed, HEADS) @ output
        np.testing.assert_allclose(actual[row], expected, atol=1e-5)


def test_cross_attention_is_the_formula_head_by_head():
    layer = attention_layer(CrossAttention)
    x, memory = normal(2, 4, D), normal(2, 6, D, seed=1)
    is_padding = np.array([[0] * 6, [0, 0, 0, 0, 1, 1]], bool)
    kernel = layer.memory_projection.kernel.numpy()
    key, value = np.split(kernel, [HEADS * D_K], axis=1)
    query = layer.query_projection.kernel.numpy()
    output = layer.output_projection.kernel.numpy()
    keys, values = layer.project_memory(memory)
    actual, _ = layer(x, keys, values, padding_bias(is_padding))
    for row in range(2):
        allowed = np.broadcast_to(~is_padding[row], (4, 6))
        projected = x[row] @ query, memory[row] @ key, memory[row] @ value
        expected = multi_head(*projected, allowed, HEADS) @ output
        np.testing.assert_allclose(actual[row], expected, atol=1e-5)


@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_parameters_are_four_matrices_without_bias(kind):
    sizes = D * HEADS * (D_K + D_K + D_V) + HEADS * D_V * D
    assert attention_layer(kind).count_params() == sizes


def test_step_by_step_is_causal_attention():
    """One hypothesis per sentence, which attends to every token so far."""
    layer = attention_layer(SelfAttention)
    x = normal(3, 6, D)
    whole = layer(x, causal_bias(6))[0].numpy()
    cache = layer.empty_cache(3)
    for t in range(6):
        nothing_masked = np.zeros((3, 1, 1, t + 1), np.float32)
        y, cache = layer.step(x[:, t : t + 1], nothing_masked, cache)
        np.testing.assert_allclose(y.numpy()[:, 0], whole[:, t], atol=1e-5)
        if t == 2:  # the recent tokens become old ones
            cache = cache.select(np.arange(3), np.tile(np.arange(3), (3, 1)))
    assert tuple(cache.key.shape) == (3, HEADS, 3, D_K)
    assert tuple(cache.recent_value.shape) == (3, HEADS, 3, D_V)


def test_dropout_is_on_the_weights():
    """With values of ones the output counts the weights that are left, scaled."""
    layer = attention_layer(SelfAttention, dropout=0.5)
    kernel = np.zeros((D, HEADS * (2 * D_K + D_V)), np.float32)
    kernel[0, 2 * HEADS * D_K :] = 1  # every value is x[0], and x[0] is 1
    layer.projection.kernel.assign(kernel)
    pass_on = np.eye(HEADS * D_V, D, dtype=np.float32)
    layer.output_projection.kernel.assign(pass_on)
    x = np.zeros((1, 8, D), np.float32)
    x[..., 0] = 1  # queries and keys are 0: each of the 8 weights is 1/8
    seed = np.array([1, 2], np.int32)
    counts = layer(x, None, seed=seed)[0].numpy()[..., : HEADS * D_V] * 4
    np.testing.assert_allclose(counts, counts.round(), atol=1e-5)
    assert 0 < counts.min() < counts.max() < 8 + 1
    per_head = counts.reshape(8, HEADS, D_V)
    assert (per_head[:, :, :1] == per_head).all()  # one mask for all of a head
    assert not (per_head[:, :1] == per_head).all()  # and another for each head
    np.testing.assert_allclose(
        layer(x, None)[0].numpy()[..., : HEADS * D_V], 1, atol=1e-6
    )


def test_each_block_of_a_fused_kernel_has_its_own_glorot_limit():
    widths, fan_in = (300, 300, 60), 100
    kernel = BlockGlorot(widths)((fan_in, sum(widths))).numpy()
    for block, width in zip(
        np.split(kernel, np.cumsum(widths)[:-1], axis=1), widths, strict=True
    ):
        limit = np.sqrt(6 / (fan_in + width))
        assert 0.98 * limit < np.abs(block).max() <= limit
        np.testing.assert_allclose(block.std(), limit / np.sqrt(3), rtol=0.03)
    first, second, _ = np.split(kernel, np.cumsum(widths)[:-1], axis=1)
    assert not np.array_equal(first, second)
    again = BlockGlorot.from_config(BlockGlorot(widths).get_config())
    assert again.widths == widths


def test_every_projection_of_attention_begins_as_glorot_of_its_own():
    keras.utils.set_random_seed(0)
    d_model, queries, values = 64, 4 * 16, 4 * 48
    expected = {
        "query_key_value": (queries, queries, values),
        "query": (queries,),
        "key_value": (queries, values),
        "output": (d_model,),
    }
    for kind in (SelfAttention, CrossAttention):
        layer = kind(d_model, 4, 16, 48)
        layer.build(None)
        for weight in layer.weights:
            widths = expected[weight.path.split("/")[-2]]
            fan_in, fan_out = weight.shape
            assert fan_out == sum(widths)
            ends = np.cumsum(widths)[:-1]
            for block in np.split(weight.numpy(), ends, axis=1):
                limit = np.sqrt(6 / (fan_in + block.shape[1]))
                assert 0.98 * limit < np.abs(block).max() <= limit


def test_linear_is_dense_on_any_number_of_axes():
    layer = Linear(5)
    x = normal(2, 3, 4, 7)
    layer.build((None, 7))
    expected = x @ layer.kernel.numpy() + layer.bias.numpy()
    np.testing.assert_allclose(layer(x).numpy(), expected, atol=1e-5)


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


def test_the_numpy_formula_ignores_what_is_not_allowed():
    """The yardstick itself: hiding two positions is leaving them out."""
    query, key, value = normal(3, 4), normal(5, 4, seed=1), normal(5, 2, seed=2)
    allowed = np.arange(5) < 3
    np.testing.assert_allclose(
        attention(query, key, value, np.broadcast_to(allowed, (3, 5))),
        attention(query, key[:3], value[:3], np.ones((3, 3), bool)),
    )
