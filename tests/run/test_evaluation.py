"""`t2t evaluate`: a split by one checkpoint, and the curve of all of them."""

import json
import math
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import python, run_refused
from helpers.command_line import run as call
from helpers.command_line import run_json as call_json
from helpers.errors import refused
from helpers.json_edits import edit_json
from helpers.small_run import replace_loss
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import t2t_keras
from t2t_keras.cli import evaluation as cli_evaluation
from t2t_keras.cli import program
from t2t_keras.cli.evaluation import Evaluate
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.files.json_files import sha256
from t2t_keras.run import evaluation
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.evaluation import open_split

FAST = ("--beam_size", 1, "--decode_hparams", "extra_length=1", "--eval_sentences", 5)


# One checkpoint.


def test_loss_matches_scoring_and_perplexity_is_its_exponential(
    trained_run, data_dir, capfd
):
    argv = ("evaluate", "--output_dir", trained_run, "--checkpoint", "latest")
    result = call_json(capfd, *argv, "--split", "train", "--eval_sentences", 0)
    loss_metrics = {"nll", "perplexity", "accuracy"}
    assert result.keys() == {"sentences", "loss_sentences", *loss_metrics}
    assert result["perplexity"] == pytest.approx(math.exp(result["nll"]))
    texts = [(data_dir / f"{side}.txt").read_text() for side in ("source", "target")]
    translator = t2t_keras.load(trained_run, "latest")
    scores = translator.score(*(text.splitlines() for text in texts))
    tokens = sum(score.tokens for score in scores)
    nats = -sum(score.log_prob for score in scores) / tokens
    assert result["nll"] == pytest.approx(nats, rel=1e-5)


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


def test_a_split_without_data_is_refused_before_anything_is_loaded(
    trained_run, data_dir, capfd, tmp_path, monkeypatch
):
    monkeypatch.setattr(program, "_import_tensorflow", pytest.fail)
    data = shutil.copytree(data_dir, tmp_path / "data")
    path = data / "translate_text.manifest.json"
    fields = json.loads(path.read_text())
    for field in fields.values():
        if isinstance(field, dict):
            field.pop("dev", None)
    edit_json(path, **fields)
    argv = ("evaluate", trained_run, "--data_dir", data)
    for words in ([], ["--split", "dev"]):
        message = f"--split: there is no dev split: {data} has only train"
        assert call(*argv, *words) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert message in line


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
    paths = [data / f"translate_text-dev.{side}" for side in ("sources", "targets")]
    manifest = data / "translate_text.manifest.json"
    edit_json(manifest, text_sha256={"dev": list(map(sha256, paths))})
    assert written() == [sources, outputs, references.upper()]
    edit_json(manifest, text_sha256={})  # as of data of tensor2tensor
    assert written() == [sources, outputs, references]


def test_the_loss_and_the_scores_of_fewer_sentences_have_their_numbers():
    losses = {"nll": 1.5, "perplexity": 4.48, "accuracy": 0.69}
    report = {"bleu": {"main": 38.0, "signatures": {"main": "tok:13a"}, "hidden": 5}}
    result = {"sentences": 8, "loss_sentences": 1000, "repaired": 0.5}
    shown = Evaluate().show(result | report | losses)
    loss, decoded, scores, _ = shown.split("\n\n")
    assert loss.splitlines()[0].split() == ["sentences", "1,000"]
    assert decoded.splitlines()[0].split(maxsplit=1) == [
        "decoded",
        "the first 8 sentences",
    ]
    assert "nll" in loss and "repaired" in decoded and "38.00" in scores
    shown = Evaluate().show(result | {"sentences": 1000} | report | losses)
    assert "nll" in shown.split("\n\n")[0] and "decoded" not in shown
    shown = Evaluate().show({"sentences": 0, "loss_sentences": 1000} | losses)
    assert shown.splitlines()[0].split() == ["sentences", "1,000"]


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


LOSS = ("--eval_sentences", 0)


@pytest.fixture
def run(trained_run, tmp_path) -> Path:
    """A copy of the run, with nothing evaluated yet."""
    return shutil.copytree(trained_run, tmp_path / "run")


def every(run: Path, *flags) -> tuple:
    """The command that evaluates all checkpoints on the dev split."""
    which = ("--output_dir", run, "--split", "dev", "--checkpoint", "all")
    return ("evaluate", *which, *(flags or FAST))


def copy_checkpoint(run: Path, step: int, new: int) -> None:
    # As TensorFlow writes one: the index last, and each file whole.
    for suffix in (".data-00000-of-00001", ".index"):
        copy = shutil.copy(run / f"model.ckpt-{step}{suffix}", run / "copy")
        copy.rename(run / f"model.ckpt-{new}{suffix}")


def set_train_steps(run: Path, steps: int) -> None:
    opened = RunDirectory(run)
    hparams = opened.hparams.override(train_steps=steps)
    RunDirectory.create(run, opened.config, hparams)


def test_every_checkpoint_is_evaluated_once(run, capfd):
    assert call(*every(run), "--json") == 0
    captured = capfd.readouterr()
    assert re.search(
        r"dev: nll of all \d+ sentences, scores of the first 5\n", captured.err
    )
    result = json.loads(captured.out)
    points = result["checkpoints"]
    assert [point["step"] for point in points] == [1, 2, 3, 4]
    assert result["best"] == max(points, key=lambda point: point["bleu"])
    argv = ("evaluate", "--output_dir", run, "--split", "dev", *FAST)
    single = call_json(capfd, *argv, "--checkpoint", 2)
    assert points[1]["bleu"] == pytest.approx(single["bleu"]["sacrebleu_13a"])
    for name in ("nll", "perplexity", "accuracy"):
        assert points[1][name] == pytest.approx(single[name], rel=1e-5)
    assert points[0]["nll"] != points[1]["nll"]

    # The curve is in TensorBoard, at the times when the checkpoints were written.
    events = EventAccumulator(str(run / "evaluation-dev")).Reload()
    for name in ("bleu", "nll", "perplexity", "accuracy"):
        curve = events.Scalars(f"dev/{name}")
        assert [event.step for event in curve] == [1, 2, 3, 4]
        values = [event.value for event in curve]
        assert values == pytest.approx([point[name] for point in points])
        for event in curve:
            index = run / f"model.ckpt-{event.step}.index"
            assert event.wall_time == pytest.approx(index.stat().st_mtime, abs=1e-3)


def test_outputs_and_loss_are_of_one_checkpoint(run, capfd, monkeypatch):
    """Also if a training writes another one while the first is converted."""
    flags = ("evaluate", run, "--split", "dev", "--eval_sentences", "2")
    expected = call_json(capfd, *flags, "--checkpoint", "4")
    load_engine = cli_evaluation.load_engine

    def load_slowly(*arguments):
        engine = load_engine(*arguments)
        copy_checkpoint(run, 2, 6)
        return engine

    monkeypatch.setattr(cli_evaluation, "load_engine", load_slowly)
    assert call_json(capfd, *flags) == expected
    assert call_json(capfd, *flags) != expected


def test_other_settings_and_data_are_refused(run, capfd, tmp_path, monkeypatch):
    replace_loss(monkeypatch)
    result = call_json(capfd, *every(run, *LOSS))
    assert result["best"]["nll"] == min(p["nll"] for p in result["checkpoints"])
    flags = ("--decode_hparams", "beam_size=2", "--tokenize", "none")
    error = run_refused(capfd, *every(run, *flags))
    for change in (
        "beam_size was 4, is now 2",
        "sentences was 0, is now all",
        "bleu_tokens was 13a, is now none",
    ):
        assert change in error
    assert "extra_length" not in error
    data = Path(json.loads((run / "config.json").read_text())["data_dir"])
    copied = shutil.copytree(data, tmp_path / "other")
    edit_json(copied / "translate_text.manifest.json", seed=9)
    error = run_refused(capfd, *every(run, *LOSS, "--data_dir", copied))
    assert "metrics of other settings: data was" in error


def test_a_training_is_followed_to_its_last_step(run, capfd, monkeypatch):
    replace_loss(monkeypatch)
    monkeypatch.setattr(evaluation, "_POLL_SECONDS", 0.1)
    set_train_steps(run, 6)
    add = evaluation.Curve.add

    def add_and_go_on(self, step, *args):
        add(self, step, *args)
        if step in (4, 5):  # while the evaluation waits
            threading.Timer(0.2, copy_checkpoint, [run, 4, step + 1]).start()

    monkeypatch.setattr(evaluation.Curve, "add", add_and_go_on)
    result = call_json(capfd, *every(run, *LOSS, "--wait_minutes", 60))
    points = result["checkpoints"]
    assert [point["step"] for point in points] == [1, 2, 3, 4, 5, 6]
    assert points[4:] == [points[3] | {"step": step} for step in (5, 6)]

    # A new one joins; the others are not touched again.
    copy_checkpoint(run, 4, 7)
    calls = []
    loss = Evaluator.loss
    monkeypatch.setattr(Evaluator, "loss", lambda *args: calls.append(1) or loss(*args))
    repeated = call_json(capfd, *every(run, *LOSS))
    assert len(calls) == 1
    assert repeated["checkpoints"] == [*points, points[3] | {"step": 7}]
    assert call(*every(run, *LOSS)) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["step", "nll"]
    assert [int(line.split()[0]) for line in lines[1:8]] == [1, 2, 3, 4, 5, 6, 7]
    assert lines[-1] == f"best: step {repeated['best']['step']}"


def test_a_training_that_has_yet_to_begin_is_waited_for(run, monkeypatch):
    monkeypatch.setattr(evaluation, "_POLL_SECONDS", 0.1)
    config = run / "config.json"
    hidden = run / "hidden.json"
    config.rename(hidden)
    await_run = evaluation.await_run
    refused("is not a run directory", await_run, run, wait_minutes=0.003)
    training = threading.Timer(0.3, hidden.rename, [config])
    training.start()
    assert evaluation.await_run(run, wait_minutes=1).path == run
    training.join()


def test_a_deleted_checkpoint_is_skipped(run, capfd, monkeypatch):
    replace_loss(monkeypatch)
    add = evaluation.Curve.add

    def add_and_delete(self, step, *args):
        add(self, step, *args)
        (run / "model.ckpt-2.index").unlink(missing_ok=True)

    monkeypatch.setattr(evaluation.Curve, "add", add_and_delete)
    assert call(*every(run, *LOSS), "--json") == 0
    captured = capfd.readouterr()
    assert "model.ckpt-2 was deleted" in captured.err
    points = json.loads(captured.out)["checkpoints"]
    assert [point["step"] for point in points] == [1, 3, 4]


def test_a_damaged_checkpoint_is_not_passed_over(run, capfd):
    (run / "model.ckpt-2.index").write_bytes(b"")
    assert call(*every(run, *LOSS)) == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert "model.ckpt-2 cannot be read" in error


def test_a_run_without_checkpoints(run, capfd):
    for checkpoint in run.glob("model.ckpt-*"):
        checkpoint.unlink()
    assert "has no checkpoint" in run_refused(capfd, *every(run))
