"""The public losses, and metrics of the model, as Keras calls them.

One table on TensorFlow, on JAX, and on several replicas; the truth is NumPy's.
"""

import contextlib
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from helpers.model_checks import ids, small_model
from helpers.numpy_transformer import softmax

from t2t_keras.model import LabelSmoothedCrossEntropy

BACKEND = keras.backend.backend()
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")

VOCAB = 2100
RNG = np.random.default_rng(0)
# As many rows as columns: weights [4] could be those of rows or of columns.
TARGET = np.array([[300, 5, 2049, 1], [9, 1, 0, 0], [257, 2, 1, 0], [2, 3, 7, 1]])
# Multiples of 1 / 8, which have few bits.
LOGITS = (np.round(8 * RNG.normal(size=(4, 4, VOCAB))).clip(-24, 24) / 8).astype("f")

ROW_WEIGHTS = np.array([0.5, 3.0, 0.0, 2.0], "f")
WEIGHTS = {
    "no weights": None,
    "[B]": ROW_WEIGHTS,
    "[B, 1]": ROW_WEIGHTS[:, None],
    "[B, T]": RNG.integers(0, 5, (4, 4)).astype("f"),
}
MASKS = {
    "no mask": None,
    "mask": np.array([[0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1]], bool),
}
REDUCTIONS = ("mean_with_sample_weight", "sum_over_batch_size", "mean", "sum", "none")
FLOATS = ("float64", "float32", "bfloat16", "float16")


def soft_targets(target, vocab, smoothing):
    """1 - smoothing on the label and smoothing / (V - 1) on every other id."""
    off = smoothing / (vocab - 1)
    return np.where(np.arange(vocab) == target[..., None], 1 - smoothing, off)


def token_weights(target, weights, mask):
    """The weights [B, T] and which positions count."""
    is_token = target != 0
    if mask is not None:
        is_token &= mask
    if weights is None:
        weights = np.ones(1)
    if weights.ndim == 1:
        weights = weights[:, None]
    return weights * is_token, is_token


def expected_loss(
    smoothing, reduction, weights=None, mask=None, target=TARGET, logits=LOGITS
):
    probabilities = softmax(logits.astype(np.float64))
    soft = soft_targets(target, logits.shape[-1], smoothing)
    weights, is_token = token_weights(target, weights, mask)
    losses = -(soft * np.log(probabilities)).sum(-1) * weights  # [B, T]
    if reduction in (None, "none"):
        return losses
    divisors = {"sum": 1, "mean_with_sample_weight": weights.sum()}
    return losses.sum() / divisors.get(reduction, is_token.sum())


def with_mask(logits, mask):
    """A tensor of logits as a layer that supports masks returns it."""
    logits = keras.ops.convert_to_tensor(logits)
    if mask is not None:
        logits._keras_mask = keras.ops.convert_to_tensor(mask)
    return logits


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("reduction", [*REDUCTIONS, None])
def test_reductions_weights_and_masks(reduction, weights, mask):
    for smoothing in (0.0, 0.1):
        loss = LabelSmoothedCrossEntropy(smoothing, reduction=reduction)
        actual = loss(TARGET, with_mask(LOGITS, MASKS[mask]), WEIGHTS[weights])
        case = (smoothing, reduction, WEIGHTS[weights], MASKS[mask])
        np.testing.assert_allclose(actual, expected_loss(*case), rtol=1e-5)


def test_a_batch_of_padding_has_no_loss():
    assert float(LabelSmoothedCrossEntropy()(np.zeros_like(TARGET), LOGITS)) == 0


@pytest.fixture
def floatx():
    """Sets Keras's default dtype, for one test."""
    yield keras.config.set_floatx
    keras.config.set_floatx("float32")


@pytest.mark.parametrize("dtype", [*FLOATS, "mixed_bfloat16", "mixed_float16"])
def test_dtypes(dtype, floatx):
    """Ids above 256 and 2048 have other neighbours in 16 bits."""
    losses = [LabelSmoothedCrossEntropy(dtype=dtype)]
    losses.append(LabelSmoothedCrossEntropy(dtype=keras.DTypePolicy(dtype)))
    if dtype in FLOATS:
        floatx(dtype)
        losses.append(LabelSmoothedCrossEntropy())
    logits = keras.ops.cast(LOGITS, dtype.removeprefix("mixed_"))
    for loss in losses:
        actual = loss(TARGET, logits, ROW_WEIGHTS)
        expected = expected_loss(0.1, "mean", ROW_WEIGHTS)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
        if BACKEND == "tensorflow":  # JAX has no float64 unless it is told to
            found = keras.backend.standardize_dtype(actual.dtype)
            assert found == ("float64" if dtype == "float64" else "float32")


def test_configs():
    loss = LabelSmoothedCrossEntropy(0.2, name="x", reduction="sum", dtype="float64")
    config = keras.saving.serialize_keras_object(loss)
    restored = keras.saving.deserialize_keras_object(config)
    assert restored.get_config() == loss.get_config()
    assert restored.get_config()["dtype"] == "float64"
    actual = restored(TARGET, LOGITS)
    np.testing.assert_allclose(actual, expected_loss(0.2, "sum"), rtol=1e-5)


SMALL = 11  # a vocabulary
TABLE = RNG.normal(size=(SMALL, SMALL)).astype("f")
X = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 3, 0, 0], [4, 4, 10, 2]])
Y = np.array([[5, 1, 4, 0], [8, 1, 2, 0], [6, 0, 3, 0], [7, 7, 3, 1]])


def fitted(loss, x, y, strategy=None, **weights):
    """The loss of one update of a model that looks logits up, and its new table."""
    with strategy.scope() if strategy else contextlib.nullcontext():
        table = keras.layers.Embedding(SMALL, SMALL, mask_zero=True)
        network = keras.Sequential([keras.Input(x.shape[1:], dtype="int32"), table])
        network.set_weights([TABLE])
        sgd = keras.optimizers.SGD(1.0)
        network.compile(sgd, loss, jit_compile=BACKEND == "jax")
    size = {"batch_size": len(x), "shuffle": False, "verbose": 0}
    history = network.fit(x, y, **size, **weights)
    return history.history["loss"][0], network.get_weights()[0]


def expected_fit(x, y, weights):
    """The same by the gradient of the mean: probabilities minus soft targets."""
    logits = TABLE[x]
    loss = expected_loss(0.1, "mean", weights, x != 0, y, logits)
    weights, is_token = token_weights(y, weights, x != 0)
    excess = softmax(logits.astype(np.float64)) - soft_targets(y, SMALL, 0.1)
    table = TABLE.astype(np.float64)
    np.subtract.at(table, x, weights[..., None] * excess / is_token.sum())
    return loss, table


def assert_fits(actual, expected):
    for found, truth in zip(actual, expected, strict=True):
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_fit_with_mask_zero(weights):
    """Of x and y, each has padding where the other has none."""
    sample_weight = WEIGHTS[weights]
    actual = fitted(LabelSmoothedCrossEntropy(), X, Y, sample_weight=sample_weight)
    assert_fits(actual, expected_fit(X, Y, sample_weight))


def test_fit_with_class_weight():
    """Keras makes weights of rows of it, by their only label."""
    x, y = X[:, :1], Y[:, :1]  # labels 5, 8, 6, 7
    class_weight = {5: 2.0, 8: 0.0, 7: 0.5}
    actual = fitted(LabelSmoothedCrossEntropy(), x, y, class_weight=class_weight)
    assert_fits(actual, expected_fit(x, y, np.array([2.0, 0.0, 1.0, 0.5])))


def two_replicas():
    import tensorflow as tf

    # Collectives of several strategies in a process have the same keys.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], reduction)


@on_tensorflow
@pytest.mark.parametrize("weights", WEIGHTS)
def test_replicas_make_the_update_of_one_device(weights):
    """Each has two rows, and here half of the tokens."""
    sample_weight = WEIGHTS[weights]
    loss = LabelSmoothedCrossEntropy()
    actual = fitted(loss, X, X, two_replicas(), sample_weight=sample_weight)
    assert_fits(actual, expected_fit(X, X, sample_weight))


@on_tensorflow
def test_replicas_have_means_of_their_own():
    """Of 5 and of 6 tokens."""
    actual, _ = fitted(LabelSmoothedCrossEntropy(), X, Y, two_replicas())
    halves = [expected_fit(X[part], Y[part], None)[0] for part in ([0, 1], [2, 3])]
    np.testing.assert_allclose(actual, np.mean(halves), rtol=1e-5)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_padding_is_left_out_of_the_models_metrics(weights):
    network = small_model(dropout=0.0, num_layers=1)
    source, target = ids(4, 5), ids(4, 4, seed=1)
    target[[0, 2, 2, 3], [3, 2, 3, 3]] = 0
    logits = np.asarray(network.predict((source, target), verbose=0))
    best = logits.argmax(-1)
    labels = np.where(ids(4, 4, seed=2) < 9, best, target) * (target != 0)
    is_right = (best == labels) & (target != 0)
    assert 0 < is_right.sum() < np.sum(target != 0)

    per_token = LabelSmoothedCrossEntropy(reduction="none", name="smoothed")
    network.compile(
        keras.optimizers.SGD(0.0),
        LabelSmoothedCrossEntropy(),
        metrics=["accuracy"],
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy("right"), per_token],
    )
    sample_weight = WEIGHTS[weights]
    case = {"sample_weight": sample_weight, "batch_size": 4, "verbose": 0}
    found = network.fit((source, target), labels, **case).history
    tested = network.evaluate((source, target), labels, return_dict=True, **case)
    shares, is_token = token_weights(target, sample_weight, None)
    reduced = {"weights": sample_weight, "target": labels, "logits": logits}
    expected = {
        "loss": expected_loss(0.1, "mean", **reduced),
        "accuracy": is_right.sum() / is_token.sum(),
        "right": (is_right * shares).sum() / shares.sum(),
        "smoothed": expected_loss(0.1, "mean_with_sample_weight", **reduced),
    }
    assert set(tested) == set(found) == set(expected)
    for name, truth in expected.items():
        np.testing.assert_allclose(found[name], truth, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(tested[name], truth, rtol=1e-5, err_msg=name)


def test_padding_is_left_out_of_losses_that_do_not_know_it():
    network = small_model(dropout=0.0, num_layers=1)
    source, target = ids(4, 5), ids(4, 4, seed=1) * (TARGET != 0)
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    pair = {"source": source, "target": target}
    for logits in (network(source, target), network((source, target)), network(pair)):
        expected = expected_loss(0.0, "mean", target=target, logits=np.array(logits))
        np.testing.assert_allclose(keras_loss(target, logits), expected, rtol=1e-5)


@pytest.mark.slow
@on_tensorflow
def test_all_of_this_on_jax():
    pytest.importorskip("jax", reason="needs the extra [backends]")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", __file__]
    subprocess.run(command, env=os.environ | {"KERAS_BACKEND": "jax"}, check=True)
