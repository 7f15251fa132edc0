"""tensor2tensor's checkpoints give here the numbers that they gave there."""

import json

import numpy as np
import pytest
import tensorflow as tf
from reference import reference
from t2t_oracle import (
    CONFIGS,
    MODELS,
    OFFICIAL,
    TARGET_SPACE,
    arrays,
    every_model,
    hparams_json,
    join_shards,
    official_model,
    oracle_model,
    t2t_checkpoint,
)

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.interop.t2t_checkpoint import build, import_t2t, load_t2t
from t2t_keras.interop.t2t_hparams import load_t2t_hparams
from t2t_keras.interop.t2t_run import import_t2t_run
from t2t_keras.training.checkpoint import model_variables
from t2t_keras.training.loss import count_tokens
from t2t_keras.training.optimizer import Adam
from t2t_keras.training.schedule import learning_rate
from t2t_keras.training.step import loss_sum

D, VOCAB = 64, 50
TABLES = [f"model/{role}/table" for role in ("source_embedding", "target_embedding")]
TABLES.append("model/softmax/table")


def smoothing_entropy(vocab, smoothing):
    """What tensor2tensor subtracts from the loss of every token."""
    rest = smoothing / (vocab - 1)
    return -(1 - smoothing) * np.log(1 - smoothing) - smoothing * np.log(rest)


def mean_loss(model, source, target):
    """As tensor2tensor reports it: per token, less the entropy of the targets."""
    constant = smoothing_entropy(VOCAB, model.hparams.label_smoothing)
    return loss_sum(model, source, target, None) / count_tokens(target) - constant


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
    states = model.states(source, target).numpy()
    np.testing.assert_allclose(states, oracle["eval_decoder_output"], atol=1e-4)


def test_logits_of_the_released_checkpoint():
    """And without the vector of the target space they would not be the same."""
    model = official_model()
    oracle = arrays("t2t/oracle/official_ckpt/forward_beam.npz")
    logits = model(oracle["inputs"], oracle["targets"]).numpy()
    expected = oracle["logits"].reshape(logits.shape)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    model.source_embedding.table.assign(model.target_embedding.table)
    without = model(oracle["inputs"], oracle["targets"]).numpy()
    assert np.abs(without - expected).max() > 0.01


@every_model
def test_decoding_with_a_cache_gives_the_same_logits(config, state, tmp_path):
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_forward.npz")
    source, target = oracle["inputs"], oracle["targets"]
    expected = oracle["logits_eval"][:, :, 0, 0]
    cache = model.start_cache(model.encode(source), source, 1)
    previous = np.zeros((len(source), 1), np.int32)
    for t in range(5):
        logits, cache = model.decode_step(previous, t, cache)
        np.testing.assert_allclose(logits[:, 0].numpy(), expected[:, t], atol=1e-4)
        previous = target[:, t : t + 1]


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
    plain = loss_sum(model, source, target, None) / count_tokens(target)
    np.testing.assert_allclose(plain.numpy(), oracle["loss_eval"], rtol=1e-5)


def shared_gradients(gradients):
    """Of the one matrix, and of the vector that is in the source's table."""
    tables = [tf.convert_to_tensor(gradients[name]) for name in TABLES]
    return tf.add_n(tables), tf.reduce_sum(tables[0], axis=0) / D**0.5


@every_model
def test_gradients(config, state, tmp_path):
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_forward.npz")
    expected = arrays(f"{MODELS}/{config}/{state}_forward.npz", "grad/")
    variables = model_variables(model)
    with tf.GradientTape() as tape:
        loss = mean_loss(model, oracle["inputs"], oracle["targets"])
    gradients = tape.gradient(loss, variables)
    matrix, space = shared_gradients(gradients)
    theirs = expected["transformer/body/target_space_embedding/kernel"]
    assert_close(matrix, join_shards(expected), 1e-4, "shared")
    assert_close(space, theirs[TARGET_SPACE], 1e-4, "target space")
    assert not np.delete(theirs, TARGET_SPACE, axis=0).any()
    # The others are one to one: read them as if they were a checkpoint.
    path = t2t_checkpoint(tmp_path, expected)
    _, ours = load_t2t(path, tmp_path / "hparams.json", TARGET_SPACE)
    assert ours.keys() == gradients.keys()
    for name in ours.keys() - set(TABLES):
        assert_close(gradients[name], ours[name], 1e-4, name)


class TiedTraining:
    """Training in tensor2tensor's variables, where one matrix has three roles."""

    def __init__(self, model, variables):
        self.model = model
        self.weights = {
            name: weight
            for name, weight in model_variables(model).items()
            if name not in TABLES
        }
        self.tables = [model_variables(model)[name] for name in TABLES]
        space = variables["transformer/body/target_space_embedding/kernel"]
        self.tied = [
            tf.Variable(join_shards(variables)),
            tf.Variable(space[TARGET_SPACE]),
        ]
        self.adam = Adam([*self.weights.values(), *self.tied], model.hparams)

    @tf.function(reduce_retracing=True)
    def update(self, source, target, rate, step):
        matrix, space = self.tied
        for table in self.tables:
            table.assign(matrix)
        self.tables[0].assign_add(tf.broadcast_to(space / D**0.5, tf.shape(matrix)))
        with tf.GradientTape() as tape:
            loss = mean_loss(self.model, source, target)
        weights = [*self.weights.values(), *self.tables]
        gradients = tape.gradient(loss, weights)
        named = dict(zip([*self.weights, *TABLES], gradients, strict=True))
        tied = shared_gradients(named)
        self.adam.apply([*gradients[:-3], *tied], rate, step)
        return loss


@pytest.mark.parametrize("config", CONFIGS)
def test_twenty_steps_of_training(config, tmp_path):
    """Loss, weights and Adam's moments, after 1, 2, 3 and 20 steps."""
    json_path = hparams_json(config, tmp_path)
    start = arrays(f"{MODELS}/{config}/random_vars.npz")
    oracle = arrays(f"{MODELS}/{config}/adam_steps.npz")
    model = import_t2t(t2t_checkpoint(tmp_path, start), json_path, TARGET_SPACE)
    training = TiedTraining(model, start)
    hparams = model.hparams
    for step in range(20):
        # Its first rate is 0; from then on it is one step behind the paper's.
        rate = learning_rate(hparams, step) if step else 0.0
        np.testing.assert_allclose(rate, oracle["lr"][step], rtol=1e-5)
        loss = training.update(
            tf.constant(oracle[f"batch_{step}/inputs"]),
            tf.constant(oracle[f"batch_{step}/targets"]),
            tf.constant(rate, tf.float32),
            tf.constant(step + 1, tf.float32),
        )
        np.testing.assert_allclose(loss.numpy(), oracle["loss"][step], rtol=1e-4)
        if step + 1 in (1, 2, 3, 20):
            after = f"after_{step + 1}/"
            theirs = {k.removeprefix(after): v for k, v in oracle.items() if after in k}
            compare_training(training, theirs, json_path, tmp_path)


def compare_training(training, theirs, json_path, directory):
    """Compares weights and moments with the variables of a training step."""
    moments = (training.adam.first_moments, training.adam.second_moments)
    ours = {"": [*training.weights.values(), *training.tied]}
    ours |= dict(zip(("/Adam", "/Adam_1"), moments, strict=True))
    for suffix, values in ours.items():
        prefix = "training/" if suffix else ""
        named = {
            name.removeprefix(prefix).removesuffix(suffix): value
            for name, value in theirs.items()
            if name.startswith(f"{prefix}transformer/") and name.endswith(suffix)
        }
        path = t2t_checkpoint(directory, named)
        _, expected = load_t2t(path, json_path, TARGET_SPACE)
        space = named["transformer/body/target_space_embedding/kernel"]
        expected = [
            *(expected[name] for name in training.weights),
            join_shards(named),
            space[TARGET_SPACE],
        ]
        for value, other in zip(values, expected, strict=True):
            assert_close(value.read_value(), other, 1e-3, suffix)


# What else the files may hold


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
    return load_t2t(path, hparams_json("prenorm_shared", tmp_path, **SMALL | changes))


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


@pytest.mark.parametrize("name", ["transformer_base", "transformer_base_v1"])
def test_hparams(name, tmp_path):
    sets = json.loads(reference("t2t/oracle/misc/hparams.json").read_text())
    path = tmp_path / "hparams.json"
    path.write_text(json.dumps(sets[name]))
    expected = {
        "transformer_base_v1": HParams(position="t2t"),
        "transformer_base": HParams(
            position="t2t",
            norm="pre",
            attention_dropout=0.1,
            ffn_dropout=0.1,
            learning_rate=2.0,
            warmup_steps=8000,
            adam_beta2=0.997,
        ),
    }
    assert not load_t2t_hparams(path).difference(expected[name])


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("transformer_base_v2", 1),
        ("transformer_big", 0),
        ("transformer_base_single_gpu", 0),
        ("transformer_parsing_base", 0),
    ],
)
def test_learning_rates_of_its_hparam_sets(name, first, tmp_path):
    sets = json.loads(reference("t2t/oracle/misc/hparams.json").read_text())
    tables = json.loads(reference("t2t/oracle/misc/lr_schedules.json").read_text())
    path = tmp_path / "hparams.json"
    path.write_text(json.dumps(sets[name]))
    hparams = load_t2t_hparams(path)
    for step, expected in zip(tables["_steps"], tables[name]["values"], strict=True):
        if step + first:
            rate = learning_rate(hparams, step + first)
            np.testing.assert_allclose(rate, expected, rtol=1e-5)


# What cannot be read is said in a sentence


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pos": "emb"}, "pos 'emb', only with 'timing'"),
        ({"self_attention_type": "dot_product_relative"}, "'dot_product_relative'"),
        ({"ffn_layer": "conv_hidden_relu"}, "ffn_layer 'conv_hidden_relu'"),
        ({"layer_preprocess_sequence": "nd"}, "'nd' and layer_postprocess_sequence"),
        ({"norm_type": "batch"}, "norm_type 'batch'"),
        ({"attention_variables_3d": True}, "attention_variables_3d True"),
        ({"num_decoder_layers": 1}, "2 encoder layers and 1 decoder layers"),
        ({"attention_key_channels": 30}, "attention_key_channels 30 is not divisible"),
        ({"hidden_size": 66}, "d_model 66 is not divisible by num_heads 4"),
        ({"dropout": 0.5, "relu_dropout": 2}, r"ffn_dropout must be in \[0, 1\)"),
    ],
    ids=str,
)
def test_hparams_that_cannot_be_read(changes, message, tmp_path):
    path = hparams_json("prenorm_shared", tmp_path, **changes)
    with pytest.raises(UserError, match=message):
        load_t2t_hparams(path)


def test_files_that_are_no_hparams(tmp_path):
    path = tmp_path / "hparams.json"
    with pytest.raises(UserError, match="cannot read .*No such file"):
        load_t2t_hparams(path)
    path.write_text("{")
    with pytest.raises(UserError, match="is not valid JSON"):
        load_t2t_hparams(path)
    path.write_text("{}")
    with pytest.raises(UserError, match="no 'num_hidden_layers'"):
        load_t2t_hparams(path)
    path.write_text('{"num_hidden_layers": 2}')
    with pytest.raises(UserError, match="has no 'layer_preprocess_sequence'"):
        load_t2t_hparams(path)


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
    with pytest.raises(UserError, match=r"no .*model.ckpt-3.index"):
        load_t2t(tmp_path / "model.ckpt-3", tmp_path / "hparams.json")
    with pytest.raises(UserError, match="has no checkpoint"):
        load_t2t(tmp_path, tmp_path / "hparams.json")
    hparams = hparams_json("prenorm_shared", tmp_path)
    with pytest.raises(UserError, match="target_space_id must be in 0 ... 31, not 32"):
        load_t2t(reference(f"{MODELS}/prenorm_shared/random"), hparams, 32)
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
    with pytest.raises(UserError, match="has 33708 pieces, .* have 8190 rows"):
        import_t2t_run(
            path, path / "hparams.json", vocab, "translate_ende", tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()
