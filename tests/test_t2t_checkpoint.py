"""What a tensor2tensor checkpoint may hold, and what it may not."""

import numpy as np
import pytest
import tensorflow as tf
from t2t_oracle import (
    SMALL,
    TABLES,
    built,
    matrix,
    synthetic,
    t2t_checkpoint,
    write_hparams,
)

from t2t_keras.option import UserError
from t2t_keras.plugins.interop.t2t_checkpoint import build, load_t2t


def load_small(tmp_path, variables, **changes):
    path = t2t_checkpoint(tmp_path, variables)
    return load_t2t(path, write_hparams(tmp_path, **SMALL | changes))


def test_three_matrices_two_vocabularies_and_widths_of_heads(tmp_path):
    (source, e), (target, t), (softmax, s) = (
        matrix("input_emb", 13, 4), matrix("target_emb", 11, 4), matrix("softmax", 11)
    )  # fmt: skip
    variables = synthetic() | source | target | softmax
    hparams, weights, *_ = load_small(tmp_path, variables)
    assert (hparams.key_size, hparams.value_size) == (2, 3)
    assert not hparams.share_embeddings
    for name, table in zip(TABLES, (e, t, s), strict=True):
        np.testing.assert_array_equal(weights[name], table)
    theirs = "transformer/body/decoder/layer_0/{}/multihead_attention/{}/kernel"
    ours = weights["model/decoder/layer_0/self_attention/query_key_value/kernel"]
    for start, end, name in ((0, 4, "q"), (4, 8, "k"), (8, 14, "v")):
        kernel = variables[theirs.format("self_attention", name)]
        np.testing.assert_array_equal(ours[:, start:end], kernel)
    ours = weights["model/decoder/layer_0/cross_attention/key_value/kernel"]
    for start, end, name in ((0, 4, "k"), (4, 10, "v")):
        kernel = variables[theirs.format("encdec_attention", name)]
        np.testing.assert_array_equal(ours[:, start:end], kernel)
    model = build(hparams, weights)
    assert (model.source_vocab_size, model.target_vocab_size) == (13, 11)


def test_without_target_space_one_matrix_stays_one(tmp_path):
    """17 rows in 16 shards, the names of which do not sort as their numbers do."""
    shards, whole = matrix("shared", 17, shards=16)
    hparams, weights, *_ = load_small(tmp_path, synthetic() | shards)
    assert hparams.share_embeddings
    np.testing.assert_array_equal(weights["model/embedding/table"], whole)
    assert build(hparams, weights).target_vocab_size is None


def test_16_bits(tmp_path):
    variables = synthetic() | matrix("shared", 11)[0]
    halves = {name: tf.cast(value, tf.bfloat16) for name, value in variables.items()}
    weights = load_small(tmp_path, halves).weights
    name = "transformer/body/encoder/layer_0/ffn/conv1/bias"
    found = weights["model/encoder/layer_0/feed_forward/inner/bias"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, tf.cast(halves[name], tf.float32))


def test_stacks_of_other_depths(tmp_path):
    """Two layers in the encoder, one in the decoder."""
    variables = synthetic(layers=2) | matrix("shared", 11)[0]
    kept = {k: value for k, value in variables.items() if "decoder/layer_1" not in k}
    depths = {"num_hidden_layers": 2, "num_decoder_layers": 1}
    model = built(load_small(tmp_path, kept, **depths))
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
    with pytest.raises(UserError, match=message):
        load_small(tmp_path, variables)


def test_other_mistakes(tmp_path):
    with pytest.raises(UserError, match=r"model\.ckpt-3 is not a checkpoint"):
        load_t2t(tmp_path / "model.ckpt-3", tmp_path / "hparams.json")
    space = {"transformer/body/target_space_embedding/kernel": np.ones((32, 8))}
    path = t2t_checkpoint(tmp_path, synthetic() | matrix("shared", 11)[0] | space)
    with pytest.raises(UserError, match="must be from 0 to 31, not 32"):
        load_t2t(path, write_hparams(tmp_path, **SMALL), 32)
    variables = synthetic() | matrix("shared", 11)[0]
    model = load_small(tmp_path, variables, filter_size=16)
    with pytest.raises(UserError, match=r"shape \[8, 12\] instead of \[8, 16\]"):
        built(model)
