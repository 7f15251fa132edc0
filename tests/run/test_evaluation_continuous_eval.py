"""`t2t evaluate --checkpoint all`: the curve of the checkpoints of a run."""

import json
import re
import shutil
import threading
from pathlib import Path

import pytest
from helpers.command_line import run as call
from helpers.command_line import run_json as call_json
from helpers.command_line import run_refused
from helpers.errors import refused
from helpers.json_edits import edit_json
from helpers.small_run import replace_loss
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.run import evaluation
from t2t_keras.run.directory import RunDirectory

FAST = ("--beam_size", 1, "--decode_hparams", "extra_length=1", "--eval_sentences", 5)
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
    for suffix in (".data-00000-of-00001", ".index"):
        shutil.copy(
            run / f"model.ckpt-{step}{suffix}", run / f"model.ckpt-{new}{suffix}"
        )


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
    for name in ("loss", "perplexity", "accuracy"):
        assert points[1][name] == pytest.approx(single[name], rel=1e-5)
    assert points[0]["loss"] != points[1]["loss"]

    # The curve is in TensorBoard, at the times when the checkpoints were written.
    events = EventAccumulator(str(run / "evaluation-dev")).Reload()
    for name in ("bleu", "loss", "perplexity", "accuracy"):
        curve = events.Scalars(f"dev/{name}")
        assert [event.step for event in curve] == [1, 2, 3, 4]
        values = [event.value for event in curve]
        assert values == pytest.approx([point[name] for point in points])
        for event in curve:
            index = run / f"model.ckpt-{event.step}.index"
            assert event.wall_time == pytest.approx(index.stat().st_mtime, abs=1e-3)


def test_other_settings_and_data_are_refused(run, capfd, tmp_path, monkeypatch):
    replace_loss(monkeypatch)
    result = call_json(capfd, *every(run, *LOSS))
    assert result["best"]["loss"] == min(p["loss"] for p in result["checkpoints"])
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
    assert lines[0].split()[:2] == ["step", "loss"]
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
