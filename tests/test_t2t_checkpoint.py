"""What a tensor2tensor checkpoint may hold, what it may not, and importing a run."""

import json

import numpy as np
import pytest
from reference import reference
from t2t_oracle import OFFICIAL, TABLES, arrays, t2t_checkpoint, write_hparams

from t2t_keras.errors import UserError
from t2t_keras.interop.t2t_checkpoint import build, load_t2t
from t2t_keras.interop.t2t_run import import_t2t_run


def synthetic(layers=1, heads=2, d=8, f=12, keys=4, values=6, norm="prepostprocess"):
    """Variables of a small pre-norm model, embeddings left out: name -> array."""
    rng = np.random.default_rng(0)
    shapes = {}
    for stack, attentions in (
        ("encoder", ["self_attention"]),
        ("decoder", ["self_attention", "encdec_attention"]),
    ):
        for layer in [f"{stack}/layer_{i}" for i in range(layers)]:
            for name in attentions:
                kernels = f"{layer}/{name}/multihead_attention"
                shapes |= {f"{kernels}/{n}/kernel": (d, keys) for n in "qk"}
                shapes[f"{kernels}/v/kernel"] = (d, values)
                shapes[f"{kernels}/output_transform/kernel"] = (values, d)
            ffn = {"conv1/kernel": (d, f), "conv2/kernel": (f, d)}
            ffn |= {"conv1/bias": (f,), "conv2/bias": (d,)}
            shapes |= {f"{layer}/ffn/{k}": shape for k, shape in ffn.items()}
            for name in (*attentions, "ffn"):
                for part in ("scale", "bias"):
                    scope = f"{layer}/{name}/layer_{norm}/layer_norm"
                    shapes[f"{scope}/layer_norm_{part}"] = (d,)
        for part in ("scale", "bias"):
            scope = f"{stack}/layer_prepostprocess/layer_norm/layer_norm_{part}"
            shapes[scope] = (d,)
    return {
        f"transformer/body/{name}": rng.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def matrix(role, vocab, shards=1, d=8):
    """An embedding matrix in tensor2tensor's shards, and whole."""
    rng = np.random.default_rng(vocab)
    whole = rng.normal(size=(vocab, d)).astype(np.float32)
    sizes = [vocab // shards + (i < vocab % shards) for i in range(shards)]
    parts = np.split(whole, np.cumsum(sizes)[:-1])
    scope = f"transformer/symbol_modality_{vocab}_{d}/{role}"
    return {f"{scope}/weights_{i}": part for i, part in enumerate(parts)}, whole


SMALL = {
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "filter_size": 12,
    "num_heads": 2,
    "attention_key_channels": 4,
    "attention_value_channels": 6,
}


def load_small(tmp_path, variables, **changes):
    path = t2t_checkpoint(tmp_path, variables)
    return load_t2t(path, write_hparams(tmp_path, **SMALL | changes))


def test_three_matrices_two_vocabularies_and_widths_of_heads(tmp_path):
    (source, e), (target, t), (softmax, s) = (
        matrix("input_emb", 13, 4), matrix("target_emb", 11, 4), matrix("softmax", 11)
    )  # fmt: skip
    variables = synthetic() | source | target | softmax
    hparams, weights = load_small(tmp_path, variables)
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
    hparams, weights = load_small(tmp_path, synthetic() | shards)
    assert hparams.share_embeddings
    np.testing.assert_array_equal(weights["model/embedding/table"], whole)
    assert build(hparams, weights).target_vocab_size is None


def test_softmax_of_its_own_beside_a_shared_embedding(tmp_path):
    (shared, e), (softmax, s) = matrix("shared", 13), matrix("softmax", 13)
    _, weights = load_small(tmp_path, synthetic() | shared | softmax)
    for name, table in zip(TABLES, (e, e, s), strict=True):
        np.testing.assert_array_equal(weights[name], table)


# What cannot be read is said in a sentence


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.clear(), "is not of tensor2tensor's transformer"),
        (
            lambda v: v.update({"transformer/body/x/qkv_transform/kernel": np.ones(1)}),
            "older than 1.4",
        ),
        (
            lambda v: v.pop("transformer/body/encoder/layer_0/ffn/conv1/kernel"),
            "no variable transformer/body/encoder/layer_0/ffn/conv1/kernel",
        ),
        (
            lambda v: v.update({"transformer/body/encoder/extra": np.ones(1)}),
            r"has the variable transformer/body/encoder/extra \(and 0 more\)",
        ),
        (lambda v: v.update(matrix("shared", 13)[0]), "two matrices 'shared'"),
        (
            lambda v: [v.pop(name) for name in matrix("shared", 11)[0]],
            "no matrix for source_embedding",
        ),
    ],
    ids=["other model", "old", "missing", "extra", "ambiguous", "no embedding"],
)
def test_checkpoints_that_cannot_be_read(change, message, tmp_path):
    variables = synthetic() | matrix("shared", 11)[0]
    change(variables)
    with pytest.raises(UserError, match=message):
        load_small(tmp_path, variables)


def test_other_mistakes(tmp_path):
    with pytest.raises(UserError, match=r"model\.ckpt-3 is not a checkpoint"):
        load_t2t(tmp_path / "model.ckpt-3", tmp_path / "hparams.json")
    with pytest.raises(UserError, match="has no checkpoint"):
        load_t2t(tmp_path, tmp_path / "hparams.json")
    space = {"transformer/body/target_space_embedding/kernel": np.ones((32, 8))}
    path = t2t_checkpoint(tmp_path, synthetic() | matrix("shared", 11)[0] | space)
    with pytest.raises(UserError, match="must be in 0 to 31, not 32"):
        load_t2t(path, write_hparams(tmp_path, **SMALL), 32)
    variables = synthetic() | matrix("shared", 11)[0]
    hparams, weights = load_small(tmp_path, variables, filter_size=16)
    with pytest.raises(UserError, match=r"shape \[8, 12\] instead of \[8, 16\]"):
        build(hparams, weights)


# A whole run


def test_an_imported_run_translates_as_the_original(tmp_path):
    path = reference(OFFICIAL)
    vocab = reference("t2t/vocab.translate_ende_wmt8k.8192.subwords")
    output_dir = tmp_path / "run"
    run = import_t2t_run(
        path, path / "hparams.json", vocab, "translate_ende", output_dir
    )
    assert run.checkpoints.steps() == [1]
    translator = run.translator()
    meta = json.loads(reference("t2t/oracle/official_ckpt/meta.json").read_text())
    oracle = arrays("t2t/oracle/official_ckpt/forward_beam.npz")
    ids = translator.source_tokenizer.encode_batch(meta["sources"])
    assert ids == [[i for i in row if i] for row in oracle["inputs"].tolist()]
    scores = translator.score(meta["sources"], meta["targets"])
    logits, targets = oracle["logits"][:, :, 0, 0].astype(np.float64), oracle["targets"]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probs, targets[:, :, None], axis=2)[:, :, 0]
    expected = (chosen * (targets != 0)).sum(1)
    actual = [score.log_prob for score in scores]
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert all(isinstance(text, str) for text in translator.translate(["Hello world!"]))
    with pytest.raises(UserError, match="holds a run already"):
        import_t2t_run(path, path / "hparams.json", vocab, "translate_ende", output_dir)


def test_a_run_needs_the_vocabulary_of_its_model(tmp_path):
    path = reference(OFFICIAL)
    vocab = reference("t2t/vocab.translate_ende_wmt32k.32768.subwords")
    with pytest.raises(UserError, match=r"has 33708 tokens, .* have 8190 rows"):
        import_t2t_run(
            path, path / "hparams.json", vocab, "translate_ende", tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()
