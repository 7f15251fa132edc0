"""Layers and model as any others of Keras: configs, masks, `fit`, dtype policies."""

import contextlib
import io
import re

import keras
import numpy as np
import pytest
from helpers.layer_checks import CASES, HEADS, D, functional_model, residual
from helpers.model_checks import VOCAB, ids, small_model
from helpers.numpy_transformer import randomise
from helpers.one_step import HPARAMS, Setup, assert_close
from helpers.small_layers import normal

import t2t_keras
from t2t_keras import HParams
from t2t_keras import model as model_module
from t2t_keras.hparam import SCHEDULE_FACTORS
from t2t_keras.model import (
    CrossAttention,
    DecoderMask,
    Embedding,
    FeedForward,
    LabelSmoothedCrossEntropy,
    Schedule,
    SelfAttention,
)
from t2t_keras.run.checkpoint import model_variables
from t2t_keras.training.optimizer import learning_rate, make_optimizer
from t2t_keras.training.step import TrainStep


def test_the_model_itself_is_saved_cloned_and_summarized(tmp_path):
    network = small_model(target_vocab=11, norm="pre", position="learned", d_k=3)
    batch = ids(2, 5), ids(2, 4, vocab=11)
    network.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.hparams == network.hparams
    np.testing.assert_array_equal(loaded(*batch), network(*batch))
    cloned = keras.models.clone_model(network)
    assert type(cloned) is type(network) and cloned.hparams == network.hparams
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        network.summary()
    shapes = [re.search(r"\(None, .*?\)", x) for x in shown.getvalue().splitlines()]
    assert {x[0] for x in shapes if x} == {"(None, None, 8)"}
    assert f"{network.count_params():,}" in shown.getvalue()


def test_a_picture_has_a_box_for_the_model_and_one_for_each_layer():
    pydot = pytest.importorskip("pydot", reason="the extra [test] is not installed")
    for network, classes in (
        (small_model(), ["Transformer"]),
        (functional_model("EncoderLayer"), ["InputLayer", "EncoderLayer"]),
    ):
        picture = keras.utils.model_to_dot(network, show_shapes=True)
        assert isinstance(picture, pydot.Dot)
        assert re.findall(r"\((\w+)\)", picture.to_string()) == classes


def test_inputs_are_a_pair_a_list_or_a_dict():
    network = small_model()
    pair = (ids(2, 5), ids(2, 4))
    expected = network(*pair)
    by_name = dict(zip(("source", "target"), pair, strict=True))
    for inputs in (pair, list(pair), by_name):
        np.testing.assert_array_equal(network(inputs), expected)


# Attention beside Keras's own


def keras_attention(layer, value_size):
    """`keras.layers.MultiHeadAttention` with the weights of a layer."""
    keras_layer = keras.layers.MultiHeadAttention(HEADS, 3, value_size, use_bias=False)
    keras_layer.build((None, None, D), (None, None, D))
    if isinstance(layer, SelfAttention):
        kernels = np.split(layer.projection.kernel, [6, 12], axis=1)
    else:
        kernel_and_value = np.split(layer.key_value_projection.kernel, [6], axis=1)
        kernels = [np.array(layer.query_projection.kernel), *kernel_and_value]
    weights = [kernel.reshape(D, HEADS, -1) for kernel in kernels]
    query, key, value = weights
    output = np.array(layer.output_projection.kernel).reshape(HEADS, value_size, D)
    keras_layer.query_dense.kernel.assign(query)
    keras_layer.key_dense.kernel.assign(key)
    keras_layer.value_dense.kernel.assign(value)
    keras_layer.output_dense.kernel.assign(output)
    return keras_layer


@pytest.mark.parametrize("is_causal", [False, True])
def test_self_attention_matches_keras(is_causal):
    layer = SelfAttention(D, HEADS, 3, 5)
    layer.build((None, None, D))
    keras_layer = keras_attention(layer, 5)
    x = normal(2, 6, D)
    mask = np.random.default_rng(0).random((2, 6, 6)) < 0.7
    mask |= np.eye(6, dtype=bool)
    options = {
        "attention_mask": mask,
        "use_causal_mask": is_causal,
        "return_attention_scores": True,
    }
    for actual, expected in zip(
        layer(x, **options), keras_layer(x, x, **options), strict=True
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    np.testing.assert_allclose(layer(x), keras_layer(x, x), atol=1e-5)


def test_cross_attention_matches_keras():
    layer = CrossAttention(D, HEADS, 3, 5)
    layer.build((None, None, D))
    keras_layer = keras_attention(layer, 5)
    x = normal(2, 4, D)
    memory = normal(2, 6, D, seed=1)
    mask = np.array([[[1] * 6], [[1, 1, 1, 1, 0, 0]]], bool)
    options = {"attention_mask": mask, "return_attention_scores": True}
    for actual, expected in zip(
        layer(x, memory, **options), keras_layer(x, memory, **options), strict=True
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


# Masks, as Keras propagates them


def pooled(make, own_embedding=False):
    """A model of padded ids: masked embeddings, a layer, and the mean of its output."""
    tokens = keras.Input((None,), dtype="int32")
    embed = Embedding(VOCAB, D) if own_embedding else masked_embedding()
    y = make()(embed(tokens))
    mean = keras.layers.GlobalAveragePooling1D()(y)
    return randomise(keras.Model(tokens, [y, mean]))


def masked_embedding():
    return keras.layers.Embedding(VOCAB, D, mask_zero=True)


TOKENS = np.array([[3, 5, 2, 7], [6, 4, 8, 9]])
MASKED_LAYERS = {
    name: CASES[name].make
    for name in (
        *("LayerNorm", "Dropout", "Linear", "FeedForward", "SelfAttention", "additive"),
        *("WindowSelfAttention", "EncoderLayer", "Encoder"),
    )
}


@pytest.mark.parametrize(
    ("name", "own_embedding"),
    [*((name, False) for name in MASKED_LAYERS), ("Encoder", True)],
)
def test_padding_changes_no_output_and_is_not_averaged(name, own_embedding, tmp_path):
    """Also in the loaded model; the mean shows that the output has the mask."""
    network = pooled(MASKED_LAYERS[name], own_embedding)
    expected = network(TOKENS)
    padded = np.pad(TOKENS, ((0, 0), (0, 3)))
    network.save(tmp_path / "model.keras")
    for model in (network, keras.saving.load_model(tmp_path / "model.keras")):
        y, mean = model(padded)
        np.testing.assert_allclose(y[:, :4], expected[0], atol=1e-5)
        np.testing.assert_allclose(mean, expected[1], atol=1e-5)


@pytest.mark.parametrize("name", ["SelfAttention", "EncoderLayer", "Encoder"])
def test_a_mask_may_be_an_argument(name):
    """`mask`, `attention_mask`, or both."""
    layer = MASKED_LAYERS[name]()
    x = normal(2, 6, D)
    valid = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], bool)
    short = np.array(layer(x[1:, :3]))
    for masks in (
        {"mask": valid},
        {"x_mask": valid},
        {"attention_mask": valid[:, None]},
        {"mask": valid, "attention_mask": np.ones((1, 6, 6), bool)},
        {"mask": np.ones((2, 6), bool), "attention_mask": valid[:, None]},
    ):
        y = np.array(layer(x, **masks))
        np.testing.assert_allclose(y[1:, :3], short, atol=1e-5)
        np.testing.assert_allclose(y[:1], layer(x[:1]), atol=1e-5)
    lower_triangle = np.tril(np.ones((6, 6), bool))[None]
    causal = layer(x, attention_mask=lower_triangle)
    np.testing.assert_allclose(
        causal[:, :3],
        layer(x[:, :3], attention_mask=lower_triangle[:, :3, :3]),
        atol=1e-5,
    )


@pytest.mark.parametrize("name", ["CrossAttention", "DecoderLayer", "Decoder"])
def test_padding_of_both_sides_is_masked_in_the_decoder(name):
    """Padding of the target comes first here: the causal mask does not hide it."""
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    y = CASES[name].make()(masked_embedding()(target), masked_embedding()(source))
    mean = keras.layers.GlobalAveragePooling1D()(y)
    network = randomise(keras.Model([source, target], [y, mean]))
    expected = network([TOKENS, TOKENS[:, 1:]])
    padded = np.pad(TOKENS, ((0, 0), (0, 2))), np.pad(TOKENS[:, 1:], ((0, 0), (2, 0)))
    y, mean = network(padded)
    np.testing.assert_allclose(y[:, 2:], expected[0], atol=1e-5)
    np.testing.assert_allclose(mean, expected[1], atol=1e-5)


@pytest.mark.parametrize("name", ["DecoderLayer", "Decoder"])
def test_masks_of_the_decoder_may_be_arguments(name):
    layer = CASES[name].make()
    x = normal(1, 4, D)
    memory = normal(1, 6, D, seed=1)
    expected = layer(x[:, 1:], memory[:, :4])
    of_target = np.array([[0, 1, 1, 1]], bool)
    of_source = np.array([[1] * 4 + [0] * 2], bool)
    cross_attention = DecoderMask(cross_attention=of_source[:, None])
    for masks in (
        {"x_mask": of_target, "encoder_output_mask": of_source},
        {"x_mask": of_target, "attention_mask": cross_attention},
        {"attention_mask": of_target[:, None], "encoder_output_mask": of_source},
        {"attention_mask": DecoderMask(of_target[:, None], of_source[:, None])},
    ):
        y = layer(x, memory, **masks)
        np.testing.assert_allclose(y[:, 1:], expected, atol=1e-5)


def test_a_mask_of_the_decoder_in_a_functional_model(tmp_path):
    """It is an input, and Keras passes the masks of padding besides."""
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    mask = keras.Input((None, None), dtype="bool")
    layer = CASES["Decoder"].make()
    x, memory = masked_embedding()(target), masked_embedding()(source)
    masks = DecoderMask(cross_attention=mask)
    y = layer(x, memory, attention_mask=masks)
    network = randomise(keras.Model([source, target, mask], [y, x, memory]))
    padded = np.pad(TOKENS, ((0, 0), (0, 2)))
    is_visible = np.random.default_rng(0).random((2, 4, 6)) < 0.7
    arrays = [padded.astype(np.int32), TOKENS.astype(np.int32), is_visible]
    expected, x, memory = network(arrays)
    masks = DecoderMask(cross_attention=is_visible & (padded > 0)[:, None])
    x, memory = np.array(x), np.array(memory)  # without masks
    np.testing.assert_array_equal(layer(x, memory, attention_mask=masks), expected)
    assert np.abs(layer(x, memory) - expected).max() > 1e-3
    network.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(arrays)[0], expected)
    network.export(tmp_path / "export", verbose=False)
    served = keras.layers.TFSMLayer(tmp_path / "export", call_endpoint="serve")
    np.testing.assert_allclose(served(arrays)[0], expected, atol=1e-6)


def test_a_residual_keeps_the_mask():
    tokens = keras.Input((None,), dtype="int32")
    x = masked_embedding()(tokens)
    y = keras.layers.GlobalAveragePooling1D()(residual()(x, FeedForward(D, 12)(x)))
    network = randomise(keras.Model(tokens, y))
    padded = np.pad(TOKENS, ((0, 0), (0, 3)))
    np.testing.assert_allclose(network(padded), network(TOKENS), atol=1e-5)


def test_the_mask_is_passed_beside_other_tensors():
    """Then Keras passes it by another name."""
    layer = SelfAttention(D, HEADS)
    embed = masked_embedding()
    expected = layer(embed(TOKENS))
    embedded = embed(np.pad(TOKENS, ((0, 0), (0, 3))))
    seed = np.array([1, 2], np.int32)
    full_mask = np.ones((1, 7, 7), bool)
    for tensors in ({"seed": seed}, {"attention_mask": full_mask}):
        actual = layer(embedded, **tensors)
        np.testing.assert_allclose(actual[:, :4], expected, atol=1e-5)


# Training


def test_training_draws_dropout_that_depends_on_keras_seed():
    def outputs():
        keras.utils.set_random_seed(3)
        network = small_model(num_layers=1, dropout=0.5, attention_dropout=0.5)
        batch = ids(2, 5), ids(2, 4)
        assert (network(*batch) == network(*batch, training=False)).numpy().all()
        return [network(*batch, training=True).numpy() for _ in range(2)]

    first_outputs, second_outputs = outputs()
    assert np.abs(first_outputs - second_outputs).max() > 0.1
    np.testing.assert_array_equal(outputs(), [first_outputs, second_outputs])
    layer = SelfAttention(D, HEADS, dropout=0.5)
    x = normal(2, 6, D)
    assert np.abs(layer(x, training=True) - layer(x)).max() > 0.01


def test_a_generator_of_masks_changes_no_initial_weight():
    def weights(rate):
        keras.utils.set_random_seed(3)
        hparams = HParams(num_layers=1, d_model=8, d_ff=8, num_heads=2, dropout=rate)
        return model_module.Transformer(hparams, VOCAB).get_weights()

    for without_dropout, with_dropout in zip(weights(0.0), weights(0.5), strict=True):
        np.testing.assert_array_equal(without_dropout, with_dropout)


@pytest.mark.parametrize(
    "schedule", ["*".join(SCHEDULE_FACTORS[1:3]), *SCHEDULE_FACTORS]
)
def test_schedule_matches_the_trainer(schedule):
    hparams = HParams(schedule=schedule, learning_rate=2.0, warmup_steps=7)
    restored = Schedule.from_config(Schedule(hparams).get_config())
    for step in (1, 6, 7, 8, 100):
        expected = learning_rate(hparams, step)
        np.testing.assert_allclose(restored(step - 1), expected, rtol=1e-5)


def test_fit_makes_the_updates_of_the_trainer(tmp_path):
    hparams = HPARAMS.override(warmup_steps=5)
    setup = Setup(1, hparams)
    network = model_module.build_model(hparams, setup.model.source_vocab_size)
    network.set_weights(setup.model.get_weights())
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, VOCAB, (2, 20, 6, 9)) * rng.integers(0, 2, (2, 20, 6, 9))
    batches = -np.sort(-tokens)  # 20 of 6 pairs, whose padding comes last
    with setup.strategy.scope():
        optimizer = make_optimizer(setup.weights, hparams)
        trainer = TrainStep(setup.model, optimizer, setup.strategy, 5)
    for step, batch in enumerate(setup.batches(*zip(*batches, strict=True))):
        trainer.update(batch, step, learning_rate(hparams, step + 1))
    adam = keras.optimizers.Adam(Schedule(hparams), beta_2=0.98, epsilon=1e-9)
    network.compile(adam, LabelSmoothedCrossEntropy(hparams.label_smoothing))
    source, target = batches.reshape(2, -1, 9)
    network.fit((source, target), target, batch_size=6, shuffle=False, verbose=0)
    fitted = {k: v.numpy() for k, v in model_variables(network).items()}
    trained = {k: v.numpy() for k, v in model_variables(setup.model).items()}
    assert_close(fitted, trained, relative=1e-4)
    network.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.learning_rate == network.optimizer.learning_rate
    np.testing.assert_array_equal(loaded(source, target), network(source, target))


def test_only_public_names_are_listed():
    assert dir(t2t_keras) == sorted(t2t_keras.__all__)
    for name in model_module.__all__:
        assert getattr(model_module, name).__name__ == name
