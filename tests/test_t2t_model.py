"""tensor2tensor's checkpoints give here the numbers that they gave there."""

import numpy as np
import pytest
import tensorflow as tf
from one_step import summed_loss
from t2t_oracle import (
    CONFIGS,
    MODELS,
    TARGET_SPACE,
    arrays,
    built,
    every_model,
    hparams_json,
    official_model,
    oracle_model,
    t2t_checkpoint,
)

from t2t_keras.model.loss import count_tokens
from t2t_keras.plugins.interop.t2t_checkpoint import load_t2t
from t2t_keras.training.checkpoint import model_variables
from t2t_keras.training.optimizer import Adam, learning_rate

VOCAB = 50


def smoothing_entropy(vocab, smoothing):
    """What tensor2tensor subtracts from the loss of every token."""
    rest = smoothing / (vocab - 1)
    return -(1 - smoothing) * np.log(1 - smoothing) - smoothing * np.log(rest)


def mean_loss(model, source, target):
    """As tensor2tensor reports it: per token, less the entropy of the targets."""
    constant = smoothing_entropy(VOCAB, model.hparams.label_smoothing)
    return summed_loss(model, source, target) / count_tokens(target) - constant


def assert_close(actual, expected, relative, name=""):
    error = np.abs(np.asarray(actual) - expected).max()
    assert error <= relative * np.abs(expected).max(), (name, error)


# The forward pass


@every_model
def test_logits_and_states(config, state, tmp_path):
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_forward.npz")
    source, target = oracle["inputs"], oracle["targets"]
    assert (source == 0).any() and (target == 0).any()
    logits = model(source, target).numpy()
    expected = oracle["logits_eval"].reshape(logits.shape)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    is_token = source != 0  # tensor2tensor's memory of padding is another, and unused
    memory = model.encode(source).numpy()[is_token]
    np.testing.assert_allclose(
        memory, oracle["eval_encoder_output"][is_token], atol=1e-4
    )
    states, _ = model.states(source, target)
    np.testing.assert_allclose(states, oracle["eval_decoder_output"], atol=1e-4)


def test_logits_of_the_released_checkpoint():
    """And without the vector of the target space they would not be the same."""
    model = official_model()
    oracle = arrays("t2t/oracle/official_ckpt/forward_beam.npz")
    logits = model(oracle["inputs"], oracle["targets"]).numpy()
    expected = oracle["logits"].reshape(logits.shape)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    model.target_space.vector.assign(0 * model.target_space.vector)
    without = model(oracle["inputs"], oracle["targets"]).numpy()
    assert np.abs(without - expected).max() > 0.01


# Loss, gradients, and training


@every_model
def test_losses(config, state, tmp_path):
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_forward.npz")
    source, target = oracle["inputs"], oracle["targets"]
    assert float(count_tokens(target)) == oracle["loss_den"]
    loss = mean_loss(model, source, target).numpy()
    np.testing.assert_allclose(loss, oracle["loss_train_ls"], rtol=1e-5)
    model.hparams = model.hparams.override(label_smoothing=0)
    plain = summed_loss(model, source, target) / count_tokens(target)
    np.testing.assert_allclose(plain.numpy(), oracle["loss_eval"], rtol=1e-5)


@every_model
def test_gradients(config, state, tmp_path):
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_forward.npz")
    expected = arrays(f"{MODELS}/{config}/{state}_forward.npz", "grad/")
    variables = model_variables(model)
    with tf.GradientTape() as tape:
        loss = mean_loss(model, oracle["inputs"], oracle["targets"])
    gradients = tape.gradient(loss, variables)
    gradients = {k: tf.convert_to_tensor(value) for k, value in gradients.items()}
    assert_equal_weights(gradients, expected, tmp_path / "hparams.json", tmp_path)
    spaces = expected["transformer/body/target_space_embedding/kernel"]
    assert not np.delete(spaces, TARGET_SPACE, axis=0).any()


def assert_equal_weights(ours, theirs, json_path, directory):
    """Compares values by our names with values under tensor2tensor's.

    The latter are read as if they were a checkpoint.
    """
    path = t2t_checkpoint(directory, theirs)
    expected = load_t2t(path, json_path, TARGET_SPACE).weights
    assert ours.keys() == expected.keys()
    for name, value in ours.items():
        assert_close(value, expected[name], 1e-4, name)


@pytest.mark.parametrize("config", CONFIGS)
def test_twenty_steps_of_training(config, tmp_path):
    """Loss, weights and Adam's moments, after 1, 2, 3 and 20 steps."""
    json_path = hparams_json(config, tmp_path)
    start = arrays(f"{MODELS}/{config}/random_vars.npz")
    oracle = arrays(f"{MODELS}/{config}/adam_steps.npz")
    path = t2t_checkpoint(tmp_path, start)
    model = built(load_t2t(path, json_path, TARGET_SPACE))
    hparams, variables = model.hparams, model_variables(model)
    adam = Adam(variables, hparams)

    @tf.function(reduce_retracing=True)
    def update(source, target, rate, step):
        with tf.GradientTape() as tape:
            loss = mean_loss(model, source, target)
        gradients = tape.gradient(loss, [*variables.values()])
        adam.apply(gradients, rate, step, tf.constant(True))
        return loss

    for step in range(20):
        # Its first rate is 0; from then on it is one step behind the paper's.
        rate = learning_rate(hparams, step) if step else 0.0
        np.testing.assert_allclose(rate, oracle["lr"][step], rtol=1e-5)
        loss = update(
            tf.constant(oracle[f"batch_{step}/inputs"]),
            tf.constant(oracle[f"batch_{step}/targets"]),
            tf.constant(rate, tf.float32),
            tf.constant(step + 1, tf.float32),
        )
        np.testing.assert_allclose(loss.numpy(), oracle["loss"][step], rtol=1e-4)
        if step + 1 in (1, 2, 3, 20):
            after = f"after_{step + 1}/"
            theirs = {k.removeprefix(after): v for k, v in oracle.items() if after in k}
            slots = [value.read_value() for value in adam.variables.values()]
            compare_training(variables, slots, theirs, json_path, tmp_path)


def compare_training(variables, slots, theirs, json_path, directory):
    """Compares weights and moments with the variables of a training step."""
    half = len(slots) // 2  # all m, then all v
    weights = [value.read_value() for value in variables.values()]
    ours = {"": weights, "/Adam": slots[:half], "/Adam_1": slots[half:]}
    for suffix, values in ours.items():
        prefix = "training/" if suffix else ""
        named = {
            name.removeprefix(prefix).removesuffix(suffix): value
            for name, value in theirs.items()
            if name.startswith(f"{prefix}transformer/") and name.endswith(suffix)
        }
        values = dict(zip(variables, values, strict=True))
        assert_equal_weights(values, named, json_path, directory)
