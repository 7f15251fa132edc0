"""tensor2tensor's checkpoints give the numbers that tensor2tensor computed."""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import EOS, searcher
from helpers.errors import refused
from helpers.one_step import assert_close, summed_loss
from helpers.t2t_oracle import (
    CONFIGS,
    MODELS,
    SMALL,
    TABLES,
    TARGET_SPACE,
    arrays,
    built,
    every_model,
    hparams_json,
    matrix,
    official_model,
    oracle_model,
    synthetic,
    t2t_checkpoint,
    write_hparams,
)

from t2t_keras.errors import UserError
from t2t_keras.model.loss import count_tokens
from t2t_keras.plugins.interop.t2t.checkpoint import build, load_t2t
from t2t_keras.run.checkpoint import model_variables
from t2t_keras.training.optimizer import Adam, learning_rate

VOCAB = 50


def smoothing_entropy(vocab, smoothing):
    """What tensor2tensor subtracts from the loss of every token."""
    off_value = smoothing / (vocab - 1)
    return -(1 - smoothing) * np.log(1 - smoothing) - smoothing * np.log(off_value)


def mean_loss(model, source, target):
    """As tensor2tensor reports it: per token, less the entropy of the targets."""
    constant = smoothing_entropy(VOCAB, model.hparams.label_smoothing)
    return summed_loss(model, source, target) / count_tokens(target) - constant


# The forward pass


@every_model
def test_logits_and_states(config, state, tmp_path):
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_forward.npz")
    source = oracle["inputs"]
    target = oracle["targets"]
    assert (source == 0).any() and (target == 0).any()
    logits = model(source, target).numpy()
    expected = oracle["logits_eval"].reshape(logits.shape)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    is_token = source != 0  # tensor2tensor's memory of padding is another, and unused
    memory = model.encode(source).numpy()[is_token]
    np.testing.assert_allclose(
        memory, oracle["eval_encoder_output"][is_token], atol=1e-4
    )
    states, _ = model.decoder_outputs(source, target)
    np.testing.assert_allclose(states, oracle["eval_decoder_output"], atol=1e-4)


# Loss, gradients, and training


@every_model
def test_losses_and_gradients(config, state, tmp_path):
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_forward.npz")
    source = oracle["inputs"]
    target = oracle["targets"]
    assert float(count_tokens(target)) == oracle["loss_den"]
    variables = model_variables(model)
    with tf.GradientTape() as tape:
        loss = mean_loss(model, source, target)
    np.testing.assert_allclose(loss, oracle["loss_train_ls"], rtol=1e-5)
    gradients = tape.gradient(loss, variables)
    gradients = {k: tf.convert_to_tensor(value) for k, value in gradients.items()}
    expected = arrays(f"{MODELS}/{config}/{state}_forward.npz", "grad/")
    assert_equal_weights(gradients, expected, tmp_path / "hparams.json", tmp_path)
    spaces = expected["transformer/body/target_space_embedding/kernel"]
    assert not np.delete(spaces, TARGET_SPACE, axis=0).any()
    model.hparams = model.hparams.override(label_smoothing=0)
    plain = summed_loss(model, source, target) / count_tokens(target)
    np.testing.assert_allclose(plain, oracle["loss_eval"], rtol=1e-5)


def assert_equal_weights(ours, t2t_weights, json_path, directory):
    """Compares values by our names with values under tensor2tensor's.

    The latter are read as if they were a checkpoint.
    """
    path = t2t_checkpoint(directory, t2t_weights)
    expected = load_t2t(path, json_path, TARGET_SPACE).weights
    assert ours.keys() == expected.keys()
    ours = {name: np.asarray(value) for name, value in ours.items()}
    assert_close(ours, expected, 1e-4)


@pytest.mark.parametrize(
    "config", [CONFIGS[0], pytest.param(CONFIGS[1], marks=pytest.mark.slow)]
)
def test_twenty_steps_of_training(config, tmp_path):
    """Loss, weights and Adam's moments, after 1, 2, 3 and 20 steps."""
    json_path = hparams_json(config, tmp_path)
    start = arrays(f"{MODELS}/{config}/random_vars.npz")
    oracle = arrays(f"{MODELS}/{config}/adam_steps.npz")
    path = t2t_checkpoint(tmp_path, start)
    model = built(load_t2t(path, json_path, TARGET_SPACE))
    hparams = model.hparams
    variables = model_variables(model)
    adam = Adam(variables, hparams)

    @tf.function(reduce_retracing=True, autograph=False)
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
        sides = (oracle[f"batch_{step}/{side}"] for side in ("inputs", "targets"))
        scalars = (tf.constant(x, tf.float32) for x in (rate, step + 1))
        loss = update(*map(tf.constant, sides), *scalars)
        np.testing.assert_allclose(loss.numpy(), oracle["loss"][step], rtol=1e-4)
        if step + 1 in (1, 2, 3, 20):
            prefix = f"after_{step + 1}/"
            t2t_weights = {
                k.removeprefix(prefix): v for k, v in oracle.items() if prefix in k
            }
            slots = [value.read_value() for value in adam.variables.values()]
            compare_training(variables, slots, t2t_weights, json_path, tmp_path)


def compare_training(variables, slots, t2t_weights, json_path, directory):
    """Compares weights and moments with the variables of a training step."""
    half = len(slots) // 2  # all m, then all v
    weights = [value.read_value() for value in variables.values()]
    ours = {"": weights, "/Adam": slots[:half], "/Adam_1": slots[half:]}
    for suffix, values in ours.items():
        prefix = "training/" if suffix else ""
        named = {
            name.removeprefix(prefix).removesuffix(suffix): value
            for name, value in t2t_weights.items()
            if name.startswith(f"{prefix}transformer/") and name.endswith(suffix)
        }
        values = dict(zip(variables, values, strict=True))
        assert_equal_weights(values, named, json_path, directory)


# Beam search finds what tensor2tensor's finds, where their rules are the same.
#
# They are, given one limit for the whole batch: tensor2tensor's is the padded length of
# the input and so many pieces more. Two things differ by design:
#
# - where no hypothesis of a sentence has finished, tensor2tensor returns the unfinished
#   ones with their log-probabilities as scores, here these are divided by the penalty;
# - where fewer than n have finished, tensor2tensor leaves the other places empty, with
#   the score -1e7, here the unfinished ones follow.


EMPTY = -1e6  # scores below are of places left empty
# Finished and unfinished hypotheses that are compared.
COUNTS = {
    ("prenorm_shared", "random"): [153, 6],
    ("prenorm_shared", "trained"): [511, 20],
    ("postnorm_shared", "random"): [5, 175],
    ("postnorm_shared", "trained"): [501, 36],
}
CASE = re.compile(
    r"(?:single_(\d+)/)?beam(\d)_top(\d)_alpha([\d.]+)_len(-?\d+)/outputs"
)


def without_padding(ids):
    """Cuts after the first EOS; unfinished ones have neither EOS nor padding."""
    ids = ids.tolist()
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids


def compare(hypotheses, outputs, scores):
    """Compares hypotheses [B, n]; returns how many finished and unfinished ones."""
    finished = unfinished = 0
    for index in np.ndindex(scores.shape):
        if scores[index] < EMPTY:
            assert EOS not in hypotheses.ids[index]
            continue
        ids = without_padding(outputs[index])
        assert hypotheses.ids[index][: hypotheses.lengths[index]].tolist() == ids
        if ids[-1] == EOS:
            finished += 1
            actual = hypotheses.scores[index]
        else:
            unfinished += 1
            actual = hypotheses.log_probs[index]
        np.testing.assert_allclose(actual, scores[index], atol=1e-4)
    return finished, unfinished


def compare_all(model, oracle):
    """Compares every case of a file; returns the counts, summed."""
    search = searcher(model)
    sources = oracle["inputs"]
    total = np.zeros(2, int)
    for name in oracle:
        if not (case := CASE.fullmatch(name)):
            continue
        row, beams, n, extra = (int(case[i]) if case[i] else None for i in (1, 2, 3, 5))
        source = sources
        if row is not None:
            source = sources[row : row + 1, : np.count_nonzero(sources[row])]
        shape = (len(source), n)
        hypotheses = search(source, source.shape[1] + extra, beams, float(case[4]), n)
        outputs = oracle[name].reshape(*shape, -1)
        scores = oracle[name.replace("outputs", "scores")].reshape(shape)
        total += compare(hypotheses, outputs, scores)
    if "greedy/outputs" in oracle:
        hypotheses = search(sources, sources.shape[1] + 10, 1, alpha=0.0)
        outputs, scores = (oracle[f"greedy/{name}"] for name in ("outputs", "scores"))
        total += compare(hypotheses, outputs[:, None], scores[:, None])
    return total.tolist()


@pytest.mark.parametrize(
    ("config", "state"),
    [
        (CONFIGS[0], "trained"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in itertools.product(CONFIGS, ("trained", "random"))
            if case != (CONFIGS[0], "trained")
        ),
    ],
)
def test_beams_of_batches_and_of_single_sentences(config, state, tmp_path):
    """Greedy and beam 4, 1 best and 4, alpha 0, 0.6 and 1, limits 50, 10 and -5."""
    model = oracle_model(config, state, tmp_path)
    counts = compare_all(model, arrays(f"{MODELS}/{config}/{state}_beams.npz"))
    assert counts == COUNTS[config, state]


@pytest.mark.slow
def test_beams_of_the_released_checkpoint():
    """It was trained for one step: nothing finishes."""
    oracle = arrays("t2t/oracle/official_ckpt/forward_beam.npz")
    assert compare_all(official_model(), oracle) == [0, 25]


# What a tensor2tensor checkpoint may hold, and what it may not.


def load_small(tmp_path, variables, **changes):
    path = t2t_checkpoint(tmp_path, variables)
    return load_t2t(path, write_hparams(tmp_path, **SMALL | changes))


def test_three_matrices_two_vocabularies_and_widths_of_heads(tmp_path):
    source_variables, source_table = matrix("input_emb", 13, 4)
    target_variables, target_table = matrix("target_emb", 11, 4)
    softmax_variables, softmax_table = matrix("softmax", 11)
    tables = source_table, target_table, softmax_table
    variables = synthetic() | source_variables | target_variables | softmax_variables
    hparams, weights, *_ = load_small(tmp_path, variables)
    assert (hparams.key_size, hparams.value_size) == (2, 3)
    assert not hparams.share_embeddings
    for name, table in zip(TABLES, tables, strict=True):
        np.testing.assert_array_equal(weights[name], table)
    t2t_name = "transformer/body/decoder/layer_0/{}/multihead_attention/{}/kernel"
    ours = weights["model/decoder/layer_0/self_attention/query_key_value/kernel"]
    for start, stop, name in ((0, 4, "q"), (4, 8, "k"), (8, 14, "v")):
        kernel = variables[t2t_name.format("self_attention", name)]
        np.testing.assert_array_equal(ours[:, start:stop], kernel)
    ours = weights["model/decoder/layer_0/cross_attention/key_value/kernel"]
    for start, stop, name in ((0, 4, "k"), (4, 10, "v")):
        kernel = variables[t2t_name.format("encdec_attention", name)]
        np.testing.assert_array_equal(ours[:, start:stop], kernel)
    model = build(hparams, weights)
    assert (model.source_vocab_size, model.target_vocab_size) == (13, 11)


def test_without_target_space_one_matrix_stays_one(tmp_path):
    """17 rows in 16 shards, the names of which do not sort as their numbers do."""
    shards, matrix_of_all = matrix("shared", 17, shards=16)
    hparams, weights, *_ = load_small(tmp_path, synthetic() | shards)
    assert hparams.share_embeddings
    np.testing.assert_array_equal(weights["model/embedding/table"], matrix_of_all)
    assert build(hparams, weights).target_vocab_size is None


def test_16_bits(tmp_path):
    variables = synthetic() | matrix("shared", 11)[0]
    halves = {name: tf.cast(value, tf.bfloat16) for name, value in variables.items()}
    weights = load_small(tmp_path, halves).weights
    name = "transformer/body/encoder/layer_0/ffn/conv1/bias"
    bias = weights["model/encoder/layer_0/feed_forward/inner/bias"]
    assert bias.dtype == np.float32
    np.testing.assert_array_equal(bias, tf.cast(halves[name], tf.float32))


def test_stacks_of_other_depths(tmp_path):
    """Two layers in the encoder, one in the decoder."""
    variables = synthetic(layers=2) | matrix("shared", 11)[0]
    remaining = {
        k: value for k, value in variables.items() if "decoder/layer_1" not in k
    }
    depths = {"num_hidden_layers": 2, "num_decoder_layers": 1}
    model = built(load_small(tmp_path, remaining, **depths))
    assert [len(stack.layers) for stack in (model.encoder, model.decoder)] == [2, 1]
    with pytest.raises(UserError, match=r"has the variable .*decoder/layer_1"):
        load_small(tmp_path, variables, **depths)


# What cannot be read is said in a sentence


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.clear(), "is not of tensor2tensor's transformer"),
        (
            lambda v: v.pop("transformer/body/encoder/layer_0/ffn/conv1/kernel"),
            "no variable transformer/body/encoder/layer_0/ffn/conv1/kernel",
        ),
        (
            lambda v: v.update({"transformer/body/encoder/extra": np.ones(1)}),
            r"has the variable transformer/body/encoder/extra \(and 0 more\)",
        ),
        (lambda v: v.update(matrix("shared", 13)[0]), "two matrices 'shared'"),
    ],
    ids=["other model", "missing", "extra", "ambiguous"],
)
def test_checkpoints_that_cannot_be_read(change, message, tmp_path):
    variables = synthetic() | matrix("shared", 11)[0]
    change(variables)
    refused(message, load_small, tmp_path, variables)


def test_other_mistakes(tmp_path):
    with pytest.raises(UserError, match=r"model\.ckpt-3 is not a checkpoint"):
        load_t2t(tmp_path / "model.ckpt-3", tmp_path / "hparams.json")
    space = {"transformer/body/target_space_embedding/kernel": np.ones((32, 8))}
    path = t2t_checkpoint(tmp_path, synthetic() | matrix("shared", 11)[0] | space)
    with pytest.raises(UserError, match="must be from 0 to 31, not 32"):
        load_t2t(path, write_hparams(tmp_path, **SMALL), 32)
    variables = synthetic() | matrix("shared", 11)[0]
    model = load_small(tmp_path, variables, filter_size=16)
    refused(r"shape \[8, 12\] instead of \[8, 16\]", built, model)
