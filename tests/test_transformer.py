"""The model against its equations in NumPy, and the properties that decoding needs."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from model_checks import (
    VOCAB,
    check_equations,
    check_padding,
    check_steps,
    check_training_losses,
    gradients,
    ids,
    pad,
)
from model_checks import small_model as model

from t2t_keras.model.layers import Dropout
from t2t_keras.model.loss import training_losses
from t2t_keras.model.transformer import Transformer
from t2t_keras.training.checkpoint import model_variables

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


def test_matrices_of_the_vocabularies():
    """One vocabulary: one matrix; two: two; without sharing: three (3.4)."""

    def tables(network):
        return {
            name.removeprefix("model/"): value.shape[0]
            for name, value in model_variables(network).items()
            if name.endswith("/table") and "positions" not in name
        }

    separate = {"share_embeddings": False}
    assert tables(model()) == {"embedding/table": 17}
    two = {"source_embedding/table": 17, "target_embedding/table": 11}
    assert tables(model(target_vocab=11)) == two
    three = two | {"softmax/table": 11}
    assert tables(model(target_vocab=11, **separate)) == three
    assert tables(model(**separate)) == dict.fromkeys(three, 17)


@pytest.mark.parametrize("norm", NORMS)
def test_losses_and_gradients_of_training_are_those_of_the_logits(norm):
    check_training_losses(model(dropout=0.0, norm=norm))


def test_losses_have_gradients_under_an_eager_tape():
    network = model(label_smoothing=0.1, dropout=0.0)
    batch = ids(2, 5), ids(2, 6, seed=2)
    with tf.GradientTape() as tape:
        loss, _ = training_losses(network, *batch, None)
    found = tape.gradient(loss, [v.value for v in network.trainable_variables])
    expected = gradients(network, lambda: training_losses(network, *batch, None))
    for actual, gradient in zip(found, expected[2:], strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(actual), gradient, atol=1e-5)


# What a position may depend on


@pytest.mark.parametrize("norm", NORMS)
def test_a_later_target_changes_no_earlier_logits(norm):
    network = model(norm=norm)
    source, target = ids(1, 5), ids(1, 7, seed=1)
    # Row 0 as it is; row 1 + t with another target t.
    changed = np.repeat(target, 8, axis=0)
    for t in range(7):
        changed[1 + t, t] = target[0, t] % (VOCAB - 1) + 1
    logits = network(np.repeat(source, 8, axis=0), changed).numpy()
    difference = np.abs(logits[1:] - logits[0]).max(-1)
    # Logits t predict target t: the first that may change are those at t + 1.
    assert (difference[np.tril_indices(7)] < 1e-6).all()
    assert (difference[np.triu_indices(7, 1)] > 1e-4).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_more_padding_changes_nothing(norm, position):
    check_padding(model(norm=norm, position=position))


@pytest.mark.parametrize("norm", NORMS)
def test_a_row_of_padding_stays_finite_and_disturbs_nobody(norm):
    network = model(norm=norm, dropout=0.1, attention_dropout=0.1)
    source, target = pad([[3, 4, 5], []], 3), pad([[6, 7], []], 2)
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


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_steps_with_a_cache_equal_teacher_forcing(norm, position):
    check_steps(model(norm=norm, position=position, d_k=3, d_v=5))


@pytest.mark.parametrize("window", [0, 2])
def test_a_reordered_cache_continues_the_parents(window):
    """After each step the beams are shuffled; each goes on with its own past.

    Sentences are shuffled, too, and some leave.
    """
    beams, steps = 4, 7
    network = model(attention_window=window)
    rng = np.random.default_rng(3)
    source = ids(3, 5)
    cache = network.start_cache(network.encode(source), source, beams)
    history = np.zeros((3, beams, 1), np.int32)
    for t in range(steps):
        logits, cache = network.decode_step(history[:, :, -1], t, cache)
        targets = np.pad(history[:, :, 1:], ((0, 0), (0, 0), (0, 1)))
        targets = targets.reshape(len(source) * beams, -1)
        forced = network(np.repeat(source, beams, axis=0), targets).numpy()[:, -1]
        forced = forced.reshape(len(source), beams, VOCAB)
        np.testing.assert_allclose(logits.numpy(), forced, atol=1e-5)
        parents = rng.integers(0, beams, (len(source), beams)).astype(np.int32)
        cache = network.reorder_cache(cache, parents)
        history = np.take_along_axis(history, parents[:, :, None], axis=1)
        chosen = rng.integers(1, VOCAB, (len(source), beams, 1)).astype(np.int32)
        history = np.concatenate([history, chosen], axis=2)
        if t in (1, 3, 4):
            rows = np.array({1: [2, 0, 1], 3: [1, 0], 4: [0, 1, 1]}[t], np.int32)
            cache = network.select_rows(cache, rows)
            source, history = source[rows], history[rows]


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
    return [layer for layer in network._flatten_layers() if isinstance(layer, Dropout)]


def test_dropout_is_where_the_rates_say():
    network = model(dropout=0.1, attention_dropout=0.2, ffn_dropout=0.3)
    rates = {layer.path: layer.rate for layer in dropouts(network)}
    # 2 sums of embeddings, 2 * 2 + 2 * 3 sub-layers; 2 * (1 + 2) attentions; 4 FFNs.
    assert sorted(rates.values()) == [0.1] * 12 + [0.2] * 6 + [0.3] * 4
    for path, rate in rates.items():
        if "residual" in path or path.endswith(("source_dropout", "target_dropout")):
            assert rate == 0.1
        else:
            assert rate == (0.3 if "feed_forward" in path else 0.2)


def test_every_dropout_layer_has_its_own_mask():
    folds = [layer._fold for layer in dropouts(model())]
    assert len(set(folds)) == len(folds) == 22


@pytest.mark.parametrize("norm", NORMS)
def test_every_dropout_layer_is_used(norm):
    """With all rates but one at 0, that one is seen in the logits."""
    network = model(num_layers=1, norm=norm, dropout=0.0)
    source, target = ids(2, 5), ids(2, 7, seed=1)
    plain = network(source, target).numpy()
    for layer in dropouts(network):
        layer.rate = 0.5
        assert np.abs(network(source, target, seed=SEED) - plain).max() > 1e-3
        layer.rate = 0.0
    np.testing.assert_array_equal(network(source, target, seed=SEED), plain)


# Precision, and the model as a Keras object


def test_bfloat16_gives_float32_logits_near_those_of_float32():
    exact = model(d_model=32, num_heads=4)
    rough = model(d_model=32, num_heads=4, compute_dtype="bfloat16")
    for weight in rough.trainable_variables:
        assert weight.dtype == "float32"
    source, target = ids(4, 9), ids(4, 8, seed=1)
    expected, actual = exact(source, target).numpy(), rough(source, target).numpy()
    assert actual.dtype == np.float32
    difference = np.abs(actual - expected)
    assert 1e-4 < difference.max() < 0.1 * np.abs(expected).max()
    assert difference.mean() < 0.01 * np.abs(expected).max()
    cache = rough.start_cache(rough.encode(source), source, 1)
    logits, _ = rough.decode_step(np.zeros((4, 1), np.int32), 0, cache)
    assert logits.dtype == "float32"
    np.testing.assert_allclose(logits.numpy()[:, 0], actual[:, 0], atol=0.05)


def test_bfloat16_normalises_in_float32():
    """Each norm's output has mean 0 and variance 1, to more digits than bfloat16's."""
    network = model(compute_dtype="bfloat16")
    network.encoder.layers[-1].feed_forward_residual.norm.gamma.assign(np.ones(8))
    network.encoder.layers[-1].feed_forward_residual.norm.beta.assign(np.zeros(8))
    memory = network.encode(ids(2, 5))
    assert memory.dtype == "float32"
    np.testing.assert_allclose(memory.numpy().mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(memory.numpy().var(-1), 1, atol=1e-4)


def test_config_round_trip():
    network = model(target_vocab=11, norm="pre", position="learned", d_k=3)
    again = Transformer.from_config(network.get_config())
    assert again.hparams == network.hparams
    shapes = {k: v.shape for k, v in model_variables(network).items()}
    assert {k: v.shape for k, v in model_variables(again).items()} == shapes
    for mine, other in zip(again.weights, network.weights, strict=True):
        mine.assign(other)
    source, target = ids(2, 5), ids(2, 4, vocab=11)
    np.testing.assert_array_equal(again(source, target), network(source, target))


def test_dropout_is_on_the_sums_of_embeddings_and_positions():
    """Where all of a sum is dropped, neither its ids nor its positions are left."""
    network, target = model(dropout=0.0), ids(1, 7, seed=1)
    network.source_dropout.rate = 1 - 1e-12
    first = network(ids(1, 5), target, seed=SEED).numpy()
    longer = network(ids(1, 9, seed=2), target, seed=SEED).numpy()
    np.testing.assert_allclose(longer, first, atol=1e-5)
    network.source_dropout.rate, network.target_dropout.rate = 0.0, 1 - 1e-12
    logits = network(ids(1, 5), target, seed=SEED).numpy()
    np.testing.assert_allclose(logits - logits[:, :1], 0, atol=1e-5)
