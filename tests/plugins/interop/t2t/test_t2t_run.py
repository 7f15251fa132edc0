"""`t2t import`: a tensor2tensor training directory becomes a run."""

import json
import shutil

import numpy as np
import pytest
from helpers.command_line import run, run_json, run_refused
from helpers.reference import reference
from helpers.small_data import sentence_pairs, write_pairs
from helpers.small_run import replace_updates
from helpers.t2t_oracle import (
    OFFICIAL,
    SMALL,
    arrays,
    matrix,
    synthetic,
    t2t_checkpoint,
    write_hparams,
)

from t2t_keras import UserError
from t2t_keras.plugins.interop.t2t.run import import_t2t_run
from t2t_keras.plugins.interop.t2t.subword_training import train_subwords
from t2t_keras.plugins.interop.t2t.subwords import SubwordTokenizer
from t2t_keras.run.checkpoint import Checkpoint
from t2t_keras.run.directory import RunDirectory

SPACE = 5
SPACES = "transformer/body/target_space_embedding/kernel"


def slot(rows=(SPACE,), name="Adam"):
    """The optimizer's mean of the target space embedding's gradient."""
    mean = np.zeros((32, 8), np.float32)
    mean[list(rows)] = 1e-5
    return {f"training/{SPACES}/{name}": mean}


def spaces():
    rng = np.random.default_rng(1)
    return {SPACES: rng.normal(size=(32, 8)).astype(np.float32)}


def training_directory(folder, matrices, changes=None, steps=(7,)):
    """Writes a training directory; its variables differ by checkpoint."""
    folder.mkdir(exist_ok=True)
    write_hparams(folder, **SMALL | (changes or {}))
    for step in steps:
        variables = synthetic() | matrices | spaces()
        name = "transformer/body/encoder/layer_0/ffn/conv1/bias"
        variables[name] = variables[name] + step
        t2t_checkpoint(folder, variables | slot(), step)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A data directory with a vocabulary, and a training directory that names it."""
    root = tmp_path_factory.mktemp("t2t")
    vocab = root / "data" / "vocab.translate_ende_wmt8k.8192.subwords"
    vocab.parent.mkdir()
    texts = (text for pair in sentence_pairs() for text in pair)
    train_subwords(texts, vocab, 150)
    size = SubwordTokenizer(vocab).vocab_size
    shards, _ = matrix("shared", size, 16)
    folder = training_directory(root / "train", shards, steps=(3, 7))
    (folder / "flags.txt").write_text(
        f"--data_dir={vocab.parent}\n--hparams_set=transformer_small\n"
    )
    (folder / "flags_t2t.txt").write_text("--problem=translate_ende_wmt8k\n")
    (vocab.parent / "vocab.other.1024.subwords").write_text("'a_'\n")
    return folder, vocab


def test_what_it_takes_and_says(trained, tmp_path, capfd):
    folder, vocab = trained
    result = run_json(capfd, "import", folder, "--output_dir", tmp_path / "run")
    assert result["took"] == {
        "checkpoints": [str(folder / "model.ckpt-7")],
        "hyper-parameters": str(folder / "hparams.json"),
        "vocabularies": [str(vocab)],
        "problem": "translate_ende",
        "target space": SPACE,
    }
    assert result["left_out"][0] == "the checkpoint model.ckpt-3"
    assert result["left_out"][2].startswith("the optimizer's state: training cannot")
    assert len(result["check"]) == 2
    imported = RunDirectory(tmp_path / "run")
    assert imported.config.hparams_set == "transformer_small"
    assert imported.hparams.target_space and imported.hparams.share_embeddings
    checkpoint = Checkpoint(imported.checkpoints.find())
    np.testing.assert_array_equal(
        checkpoint.tensor("model/target_space/vector"), spaces()[SPACES][SPACE]
    )
    assert (tmp_path / "run" / vocab.name).read_bytes() == vocab.read_bytes()


def test_a_path_that_tensorflow_takes_for_a_pattern(trained, tmp_path, capfd):
    folder, vocab = trained
    argv = ("import", folder, "--output_dir", tmp_path / "run[2]", "--vocab", vocab)
    assert "--output_dir: TensorFlow cannot read" in run_refused(capfd, *argv)


def test_it_is_averaged_and_tuned(trained, tmp_path, capfd, monkeypatch):
    replace_updates(monkeypatch)
    folder, vocab = trained
    data_dir = tmp_path / "data"
    output_dir = tmp_path / "run"
    files = write_pairs(tmp_path)
    data_dir.mkdir()
    shutil.copy(vocab, data_dir / "vocab.translate_mine.150.subwords")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "mine.py").write_text(
        "from t2t_keras import Problem, register_problem\n"
        "@register_problem\n"
        "def translate_mine():\n"
        "    tokenizer = {'tokenizer': 't2t_subword', 'vocab_size': 150}\n"
        "    return Problem(summary='with subwords of T2T', **tokenizer)\n"
    )
    data = ("--problem", "translate_mine", "--usr_dir", tmp_path / "usr")
    data += ("--data_dir", data_dir)
    sides = ("--dev_source", files.source_path, "--dev_target", files.target_path)
    sides += ("--train_source", files.source_path, "--train_target", files.target_path)
    assert run("datagen", *data, *sides) == 0
    flags = ("--output_dir", output_dir, "--last", 2)
    result = run_json(capfd, "import", folder, *data, *flags)
    assert len(result["took"]["checkpoints"]) == 2
    assert run("average", *flags) == 0
    biases = [
        Checkpoint(path).tensor("model/encoder/layer_0/feed_forward/inner/bias")
        for path in (output_dir / "model.ckpt-3", output_dir / "average.ckpt-7")
    ]
    np.testing.assert_allclose(biases[0] + 2, biases[1], atol=1e-5)
    tuned = ("train", *data, "--output_dir", tmp_path / "tuned", "--train_steps", 1)
    tuned += ("--init_from", output_dir, "--hparams", "dropout=0.0")
    assert run_json(capfd, *tuned, "--eval_sentences", 0)["step"] == 1


def test_verified_against_given_outputs(trained, tmp_path, capfd):
    folder, _ = trained
    sources = tmp_path / "sources"
    outputs = tmp_path / "outputs"
    sources.write_text("a dog sees the house\nthe king knows the ship \n")
    imported = import_t2t_run(folder, tmp_path / "first")
    texts = imported.run.translator().translate(sources.read_text().splitlines())
    outputs.write_text(f"{texts[0]} \nanother\n")
    verify = ("--verify", sources, outputs)
    flags = ("--output_dir", tmp_path / "run", *verify)
    assert run_json(capfd, "import", folder, *flags)["verified"] == {
        "lines": 2,
        "identical": 1,
        "first_difference": {"line": 2, "output": texts[1], "given": "another"},
    }


def test_two_vocabularies(tmp_path, monkeypatch):
    sizes = []
    for side, texts in (("en", ["ab"]), ("zh", ["abc", "cab bca"])):
        vocab = tmp_path / f"vocab.translate_enzh_wmt8k.8192.subwords.{side}"
        train_subwords(texts, vocab, 10)
        sizes.append(SubwordTokenizer(vocab).vocab_size)
    assert sizes[0] != sizes[1]
    matrices = matrix("input_emb", sizes[0], 4)[0]
    for role in ("target_emb", "softmax"):
        matrices |= matrix(role, sizes[1], 4)[0]
    folder = training_directory(tmp_path / "train", matrices)
    for path in tmp_path.glob("vocab.*"):
        shutil.copy(path, folder)
    monkeypatch.chdir(folder)
    run = import_t2t_run(".", tmp_path / "run", problem="translate_text").run
    assert [tokenizer.vocab_size for tokenizer in run.tokenizers] == sizes
    (score,) = run.translator().score(["ab"], ["cab"])
    assert score.ids == tuple(run.tokenizers[1].encode("cab"))


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (slot((8,)), 8),
        ({f"training/{SPACES}/Adafactor": slot((2,))[f"training/{SPACES}/Adam"][:, 0]
          + np.float32(1e-30)}, 2),
        ({}, None),
        (slot((0, 3)), None),
    ],
    ids=["adam", "adafactor", "no slots", "several"],
)  # fmt: skip
def test_the_target_space_is_found_or_asked_for(slots, expected, tmp_path):
    vocab = tmp_path / "vocab.small.10.subwords"
    train_subwords(["ab"], vocab, 10)
    shards, _ = matrix("shared", SubwordTokenizer(vocab).vocab_size)
    write_hparams(tmp_path, **SMALL)
    t2t_checkpoint(tmp_path, synthetic() | shards | spaces() | slots)
    output_dir = tmp_path / "run"
    if expected is None:
        with pytest.raises(UserError, match="give --target_space_id"):
            import_t2t_run(tmp_path, output_dir)
        assert not output_dir.exists()
        imported = import_t2t_run(tmp_path, output_dir, target_space_id=3)
        assert imported.took["target space"] == 3
    else:
        assert import_t2t_run(tmp_path, output_dir).took["target space"] == expected


def test_mistakes(trained, tmp_path, capfd):
    folder, vocab = trained

    def refused(sentence, source, *flags):
        argv = ("import", source, "--output_dir", tmp_path / "run", *flags)
        assert sentence in run_refused(capfd, *argv)
        assert not (tmp_path / "run").exists()

    refused("has no checkpoint", tmp_path, "--from", "t2t")
    other_vocabulary = vocab.parent / "vocab.other.1024.subwords"
    refused("is not a subword vocabulary", folder, "--vocab", other_vocabulary)
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    verify = ("--verify", lines, vocab)
    refused("line n of one must belong to line n of the other", folder, *verify)
    # A copy without its flags finds no vocabulary; cut off, it is damaged.
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("flags*"))
    refused("as many have: none; give the right one by --vocab", copy)
    (data,) = copy.glob("model.ckpt-7.data-*")
    data.write_bytes(data.read_bytes()[:-400])
    refused("model.ckpt-7 is damaged or incomplete", copy, "--vocab", vocab)


def test_the_released_checkpoint_scores_as_in_tensor2tensor(tmp_path):
    path = reference(OFFICIAL)
    vocab = reference("t2t/vocab.translate_ende_wmt8k.8192.subwords")
    options = {"vocab": [vocab], "problem": "translate_ende"}
    # Its oracle was computed in the target space 0, and it was trained in 8.
    run = import_t2t_run(path, tmp_path / "run", **options, target_space_id=0).run
    assert run.checkpoints.steps() == [1]
    translator = run.translator()
    meta = json.loads(reference("t2t/oracle/official_ckpt/meta.json").read_text())
    oracle = arrays("t2t/oracle/official_ckpt/forward_beam.npz")
    ids = translator.source_tokenizer.encode_batch(meta["sources"])
    for source_ids, row in zip(ids, oracle["inputs"], strict=True):
        assert source_ids == row[row != 0].tolist()
    scores = translator.score(meta["sources"], meta["targets"])
    logits = oracle["logits"][:, :, 0, 0].astype(np.float64)
    targets = oracle["targets"]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    target_log_probs = np.take_along_axis(log_probs, targets[:, :, None], axis=2)[
        :, :, 0
    ]
    expected = (target_log_probs * (targets != 0)).sum(1)
    actual = [score.log_prob for score in scores]
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    with pytest.raises(UserError, match="is not empty; give a new --output_dir"):
        import_t2t_run(path, tmp_path / "run", **options)
    assert import_t2t_run(path, tmp_path / "8", **options).took["target space"] == 8


@pytest.mark.parametrize("exists", [False, "as a link"])
def test_nothing_is_left_of_a_failed_import(trained, tmp_path, exists):
    """Even if the directory exists, with the newest checkpoint in it."""
    source = shutil.copytree(trained[0], tmp_path / "train")
    content = (source / "model.ckpt-3.index").read_bytes()
    (source / "model.ckpt-3.index").write_bytes(content[:50])
    if exists == "as a link":
        (tmp_path / "disk").mkdir()
        (tmp_path / "run").symlink_to("disk")
    with pytest.raises(UserError, match="is damaged or incomplete"):
        options = {"num_checkpoints": 2, "vocab": [trained[1]]}
        import_t2t_run(source, tmp_path / "run", **options)
    assert (tmp_path / "run").exists() == bool(exists)
    assert not exists or not list((tmp_path / "run").iterdir())
