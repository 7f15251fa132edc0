"""Dropout: its rate, its scale and its masks."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.small_layers import built

from t2t_keras.model.layers import Dropout, fold_in
from t2t_keras.model.layers import dropout as module
from t2t_keras.model.layers.dropout import (
    feature_keys,
    random_words,
    row_keys,
    source_keys,
    token_keys,
    weight_keys,
)

SEED = np.array([11, 22], np.int32)


def dropout(rate, name="dropout"):
    return built(Dropout(rate, name=name))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.7])
def test_dropout_rate_and_scale(rate):
    n = 100_000
    y = dropout(rate)(np.ones(n, np.float32), seed=SEED).numpy()
    is_kept = y != 0
    np.testing.assert_allclose(y[is_kept], 1 / (1 - rate), rtol=1e-6)
    # Four standard deviations of a binomial count.
    assert abs(is_kept.mean() - (1 - rate)) < 4 * np.sqrt(rate * (1 - rate) / n)


def test_the_mask_of_a_layer_depends_on_its_path():
    x = np.ones((5, 20, 100), np.float32)
    masks = [dropout(0.5, name=name)(x, seed=SEED).numpy() != 0 for name in "aba"]
    np.testing.assert_array_equal(masks[0], masks[2])
    assert abs((masks[0] == masks[1]).mean() - 0.5) < 0.02


def test_the_keys_of_tokens_draw_the_mask_of_their_seed():
    layer = dropout(0.5)
    x = np.ones((3, 4, 5), np.float32)
    weights = np.ones((3, 2, 4, 6), np.float32)
    keys = row_keys(SEED, 3, 4, source_length=6)
    np.testing.assert_array_equal(layer(x, seed=keys), layer(x, seed=SEED))
    np.testing.assert_array_equal(
        layer(weights, seed=source_keys(keys)), layer(weights, seed=SEED)
    )


@pytest.mark.parametrize("form", ["seed", "keys"])
def test_every_use_of_a_layer_has_an_independent_mask(form):
    """Of features and of attention weights, if each use has a number."""
    layer = dropout(0.5)
    seed = tf.constant(SEED) if form == "seed" else row_keys(SEED, 10, 20)
    seeds = [seed, fold_in(seed, 1), fold_in(seed, 2)]
    for shape in ((10, 20, 40), (10, 4, 20, 20)):
        x = np.ones(shape, np.float32)
        masks = [layer(x, seed=other).numpy() != 0 for other in seeds]
        for first, second in itertools.combinations(masks, 2):
            assert abs((first == second).mean() - 0.5) < 0.03
        repeated = layer(x, seed=fold_in(seed, 2)).numpy() != 0
        np.testing.assert_array_equal(repeated, masks[2])
    assert fold_in(None, 1) is None


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 4, 3, 3)])
def test_a_graph_that_knows_no_size_draws_the_same_mask(shape):
    layer = dropout(0.5)
    x = np.ones(shape, np.float32)
    keys = row_keys(SEED, shape[0], shape[-2])
    unknown = tf.TensorSpec([None] * len(shape), tf.float32)
    graph = tf.function(lambda x: layer(x, seed=keys), input_signature=[unknown])
    np.testing.assert_array_equal(graph(x), layer(x, seed=keys))


def test_without_a_seed_another_mask_is_drawn_each_time():
    layer = dropout(0.5)
    x = np.ones((3, 4, 5, 6, 70), np.float32)
    mask = layer(x, training=True).numpy() != 0
    next_mask = layer(x, training=True).numpy() != 0
    assert abs(mask.mean() - 0.5) < 0.02
    assert abs((mask == next_mask).mean() - 0.5) < 0.02


def test_dropout_scale_is_exact_enough_in_bfloat16():
    """1 / 0.9, and not this number in bfloat16, which is 0.0017 less."""
    layer = built(Dropout(0.1, dtype="bfloat16", name="dropout"))
    x = keras.ops.cast(1 + np.random.default_rng(0).random(100_000), "bfloat16")
    y = layer(x, seed=SEED)
    assert y.dtype == "bfloat16"
    x, y = (keras.ops.cast(array, "float32").numpy() for array in (x, y))
    assert abs(y[y > 0].sum() / x[y > 0].sum() - 1 / 0.9) < 0.0003


OFFSET = 0x9E3779B9
LARGE_SEED = np.array([123456789, 2**31 - 5], np.int32)
# Three pairs in two rows, and padding.
SEGMENTS = np.array([[7, 7, 7, 4, 4], [9, 9, 0, 0, 0]], np.int32)
POSITIONS = np.array([[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]], np.int32)
SOURCE_POSITIONS = np.array([[0, 0, 1], [0, 1, 2]], np.int32)


def mixed(x):
    """lowbias32 in numbers that do not overflow."""
    x = np.asarray(x, np.uint64) % 2**32
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor) % 2**32
    return x ^ (x >> np.uint64(16))


def token(segment, position):
    words = LARGE_SEED.astype(np.uint64)
    key = mixed(mixed(words[0] + OFFSET) + words[1] + OFFSET)
    return mixed(mixed(key + np.uint64(segment)) + np.uint64(position))


def product(row, column, layer):
    """The word of an element, given the keys of its row and column."""
    row = (row ^ np.uint64(layer)) * np.uint64(0x7FEB352D) % 2**32
    row = (row ^ (row >> np.uint64(16))) | np.uint64(1)
    column = mixed(np.uint64(column) + np.uint64(OFFSET)) | np.uint64(1)
    return row * column % 2**32


def feature_words(size):
    keys = token_keys(LARGE_SEED, SEGMENTS, POSITIONS, SOURCE_POSITIONS)
    return random_words(feature_keys(keys, size), 77)


def weight_words():
    keys = token_keys(LARGE_SEED, SEGMENTS, POSITIONS, SOURCE_POSITIONS)
    return random_words(weight_keys(source_keys(keys), 2), 78)


@pytest.mark.parametrize("arithmetic", ["uint32", "uint32 with XLA", "int64"])
def test_words_are_the_closed_form(arithmetic, monkeypatch):
    """With and without XLA, and in the arithmetic for PyTorch."""
    dtype, _, xla = arithmetic.partition(" ")
    monkeypatch.setattr(module, "_WORD", dtype)
    is_compiled = bool(xla)
    features = tf.function(lambda: feature_words(6), jit_compile=is_compiled)()
    weights = tf.function(weight_words, jit_compile=is_compiled)()
    assert features.shape == (2, 5, 6)
    assert weights.shape == (2, 2, 5, 3)
    for b, t in np.ndindex(2, 5):
        key = token(SEGMENTS[b, t], POSITIONS[b, t])
        for column in range(6):
            assert int(features[b, t, column]) == product(key, column, 77)
        for head, s in np.ndindex(2, 3):
            row = key ^ mixed(head + OFFSET)
            expected = product(row, SOURCE_POSITIONS[b, s], 78)
            assert int(weights[b, head, t, s]) == expected


def test_keys_of_a_known_size_are_one_constant_of_a_graph():
    keys = row_keys(LARGE_SEED, 2, 3)
    graph = tf.function(lambda: feature_keys(keys, 6).columns).get_concrete_function()
    types = [operation.type for operation in graph.graph.get_operations()]
    assert types == ["Const", "Identity"]


def test_rows_with_one_pair_have_their_numbers_as_segments():
    actual = row_keys(LARGE_SEED, 3, 4, source_length=2, first_row=5)
    segments = np.repeat([[6], [7], [8]], 4, axis=1)
    positions = np.tile(np.arange(4), (3, 1))
    expected = token_keys(LARGE_SEED, segments, positions, np.array([[0, 1]]))
    np.testing.assert_array_equal(actual.tokens, expected.tokens)
    np.testing.assert_array_equal(actual.columns, expected.columns[:1])
    np.testing.assert_array_equal(actual.source_columns, expected.source_columns)


def z_score(values):
    """How many standard deviations the mean of normalized numbers is from 0."""
    return abs(values.mean()) * np.sqrt(values.size)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_masks_are_random(rate):
    """Rate, neighbours and parities of 2 x 2 elements, to 3 standard deviations."""

    def normalized(step, layer):
        keys = row_keys(np.array([3, step]), 128, 24)
        words = random_words(feature_keys(keys, 256), layer).numpy()
        is_dropped = words < rate * 2**32
        return (is_dropped - rate) / np.sqrt(rate * (1 - rate))

    x = normalized(step=7, layer=1000)
    assert z_score(x) < 3
    assert z_score(x * normalized(step=8, layer=1000)) < 3
    assert z_score(x * normalized(step=7, layer=1001)) < 3
    for axis in range(3):  # segments, positions, columns
        halves = np.moveaxis(x, axis, 0)
        pairs = halves[1:] * halves[:-1]
        assert z_score(pairs) < 3
        assert z_score(pairs[1:] * halves[2:]) < 3
        for second in range(axis):
            second_axis = 1 + second
            blocks = np.moveaxis(pairs, second_axis, 0)
            assert z_score(blocks[1:] * blocks[:-1]) < 3


def test_numbers_of_dropped_elements_vary_as_binomial_numbers():
    keys = row_keys(LARGE_SEED, 256, 16)
    is_dropped = random_words(feature_keys(keys, 512), 5).numpy() < 0.1 * 2**32
    for axis, count in ((2, 512), ((0, 1), 4096)):
        variance = is_dropped.sum(axis).var() / (count * 0.1 * 0.9)
        samples = is_dropped.size / count
        assert abs(variance - 1) < 3 * np.sqrt(2 / samples)
