"""`t2t evaluate`: a split by one checkpoint, and the curve of all of them."""

import json
import math
import shutil

import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import python
from helpers.command_line import run as call
from helpers.command_line import run_json as call_json
from helpers.json_edits import edit_json

import t2t_keras
from t2t_keras.cli.evaluation import _show_evaluate as show_evaluate
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.evaluation import open_split

FAST = ("--beam_size", 1, "--decode_hparams", "extra_length=1", "--eval_sentences", 5)


# One checkpoint.


def test_loss_matches_scoring_and_perplexity_is_its_exponential(
    trained_run, data_dir, capfd
):
    argv = ("evaluate", "--output_dir", trained_run, "--checkpoint", "latest")
    result = call_json(capfd, *argv, "--split", "train", "--eval_sentences", 0)
    loss_metrics = {"loss", "perplexity", "accuracy"}
    assert result.keys() == {"sentences", "loss_sentences", *loss_metrics}
    assert result["perplexity"] == pytest.approx(math.exp(result["loss"]))
    texts = [(data_dir / f"{side}.txt").read_text() for side in ("source", "target")]
    translator = t2t_keras.load(trained_run, "latest")
    scores = translator.score(*(text.splitlines() for text in texts))
    tokens = sum(score.tokens for score in scores)
    nats = -sum(score.log_prob for score in scores) / tokens
    assert result["loss"] == pytest.approx(nats, rel=1e-5)


def test_accuracy_is_the_share_of_the_tokens_with_the_highest_logit(
    trained_run, data_dir
):
    """Counted by NumPy, all pairs in one batch."""
    run = RunDirectory(trained_run)
    translator = run.translator("latest")
    texts = [(data_dir / f"{side}.txt").read_text() for side in ("source", "target")]
    evaluator = open_split(run, translator, "train")
    metrics = evaluator.loss()
    source, target = (
        tf.ragged.constant([*map(tokenizer.encode, text.splitlines())], tf.int32)
        for tokenizer, text in zip(run.tokenizers, texts, strict=True)
    )
    best = np.argmax(translator.model(source.to_tensor(), target.to_tensor()), -1)
    rows = zip(best, target.to_list(), strict=True)
    correct = sum((row[: len(ids)] == ids).sum() for row, ids in rows)
    tokens = len(target.flat_values)
    assert 0 < correct < tokens
    assert metrics["accuracy"] == pytest.approx(correct / tokens, abs=1e-6)


def test_the_host_reads_the_sums_of_all_batches_once(trained_run, monkeypatch):
    run = RunDirectory(trained_run)
    evaluator = open_split(run, run.translator("latest"), "train")
    evaluator._batch_tokens = 12  # those of the longest pair
    reads = []

    def recorded(method):
        def read(tensor):
            reads.append(tensor)
            return method(tensor)

        return read

    for name in ("numpy", "__float__"):
        method = getattr(type(tf.constant(0)), name)
        monkeypatch.setattr(type(tf.constant(0)), name, recorded(method))
    evaluator.loss()
    assert len(evaluator) > 12  # so there are several batches
    assert len([tensor for tensor in reads if tensor.dtype.is_floating]) == 1


@pytest.mark.slow
def test_the_default_split_is_test_or_else_dev(trained_run, data_dir, capfd, tmp_path):
    """The data of the run have train and dev; a copy of them has a test split too."""
    argv = ("evaluate", "--output_dir", trained_run, "--eval_sentences", 0)
    dev = call_json(capfd, *argv, "--split", "dev")
    assert call(*argv) == 0
    assert "evaluating the dev split: " in capfd.readouterr().err
    assert call_json(capfd, *argv) == dev

    data = shutil.copytree(data_dir, tmp_path / "data")
    path = data / "translate_text.manifest.json"
    examples = json.loads(path.read_text())["examples"]
    edit_json(path, examples=examples | {"test": examples["dev"]})
    for file in data.glob("translate_text-dev-*"):
        shutil.copy(file, data / file.name.replace("-dev-", "-test-"))
    assert call(*argv, "--data_dir", data) == 0
    assert "evaluating the test split\n" in capfd.readouterr().err


def test_metrics_compare_with_raw_texts_and_the_records_are_decoded(
    trained_run, data_dir, monkeypatch, capfd, tmp_path
):
    """The records say what is translated, the raw texts what it is compared with."""
    data = shutil.copytree(data_dir, tmp_path / "data")
    argv = ("evaluate", "--output_dir", trained_run, "--split", "dev", *FAST)
    argv += ("--data_dir", data, "--output", tmp_path / "dev")
    translator = RunDirectory(trained_run).translator()  # whose graph is traced once
    monkeypatch.setattr(RunDirectory, "translator", lambda *args: translator)

    def written():
        assert call_json(capfd, *argv)["sentences"] == 5
        names = ("source", "hypothesis", "reference")
        return [(tmp_path / f"dev.{name}").read_text() for name in names]

    sources, outputs, references = written()
    dev_sources = (data_dir / "translate_text-dev.sources").read_text().splitlines()[:5]
    assert sources.splitlines() == dev_sources and len(references.splitlines()) == 5
    raw = data / "translate_text-dev.targets"
    raw.write_text(raw.read_text().upper())
    # Those are the checksums of the texts as they were.
    edit_json(data / "translate_text.manifest.json", text_sha256=None)
    assert written() == [sources, outputs, references.upper()]
    for side in ("sources", "targets"):  # of an earlier version, which had none
        (data / f"translate_text-dev.{side}").unlink()
    assert written() == [sources, outputs, references]


def test_the_loss_and_the_scores_of_fewer_sentences_have_their_numbers():
    losses = {"loss": 1.5, "perplexity": 4.48, "accuracy": 0.69}
    report = {"bleu": {"main": 38.0, "signatures": {"main": "tok:13a"}, "hidden": 5}}
    result = {"sentences": 8, "loss_sentences": 1000, "repaired": 0.5}
    shown = show_evaluate(result | report | losses)
    loss, decoded, scores, _ = shown.split("\n\n")
    assert loss.splitlines()[0].split() == ["sentences", "1000"]
    assert decoded.splitlines()[0].split(maxsplit=1) == [
        "decoded",
        "the first 8 sentences",
    ]
    assert "loss" in loss and "repaired" in decoded and "38.00" in scores
    shown = show_evaluate(result | {"sentences": 1000} | report | losses)
    assert "loss" in shown.split("\n\n")[0] and "decoded" not in shown
    shown = show_evaluate({"sentences": 0, "loss_sentences": 1000} | losses)
    assert shown.splitlines()[0].split() == ["sentences", "1000"]


def test_files_are_scored_without_tensorflow(tmp_path):
    (tmp_path / "text").write_text("a b c d\n")
    code = f"""
import sys
from t2t_keras.cli import main
text = {str(tmp_path / "text")!r}
argv = ["evaluate", "--hypotheses", text, "--references", text, "--tokenize", "none"]
assert main(argv) == 0
assert not {{"tensorflow", "keras"}} & sys.modules.keys()
"""
    row = next(line for line in python(code).split("\n") if "sacrebleu_none" in line)
    assert row.split()[1] == "100.00" and "tok:none" in row
