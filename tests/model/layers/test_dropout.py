"""Dropout: its rate, its scale and its masks."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.model.layers import Dropout, fold_in
from t2t_keras.model.layers.dropout import row_keys, source_keys

SEED = np.array([11, 22], np.int32)


def built(layer, width=None):
    layer.build((None, None, width))
    return layer


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


@pytest.mark.parametrize("seed", [[12, 22], [11, 23], [22, 11]])
def test_another_seed_gives_an_independent_mask(seed):
    x = np.ones(10_000, np.float32)
    layer = dropout(0.5)
    mask = layer(x, seed=SEED).numpy() != 0
    other_mask = layer(x, seed=np.array(seed, np.int32)).numpy() != 0
    assert abs((mask == other_mask).mean() - 0.5) < 0.02


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
