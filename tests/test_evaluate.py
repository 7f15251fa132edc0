"""`t2t evaluate`: a split by one checkpoint, and the curve of all of them."""

import json
import math
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_data import small_data
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import t2t_keras
from t2t_keras.cli import main
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.option import UserError
from t2t_keras.training import follow
from t2t_keras.training.run_dir import RunDirectory

HPARAMS = "num_layers=1,d_model=16,d_ff=16,num_heads=2,batch_tokens=256"
FAST = ("--beam_size", 1, "--decode_hparams", "extra_length=1", "--eval_sentences", 5)


def call(*argv) -> int:
    return main([str(word) for word in argv])


def call_json(capfd, *argv) -> dict:
    """Runs a verb that must succeed; returns the last line of standard output."""
    capfd.readouterr()
    code = call(*argv, "--json")
    captured = capfd.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out.splitlines()[-1])


def train(folder: Path, problem: str) -> Path:
    """Trains for four steps, each of them a checkpoint; returns the run directory."""
    data = ("--problem", problem, "--data_dir", folder / "data")
    flags = ("--hparams_set", "tiny", "--hparams", HPARAMS, "--train_steps", 4)
    often = ("--save_every", 1, "--eval_every", 4, "--eval_sentences", 2)
    assert call("train", *data, *flags, *often, "--output_dir", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    small_data(folder / "data")
    return train(folder, "translate_text")


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of the run, with nothing evaluated yet."""
    return shutil.copytree(trained, tmp_path / "run")


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


# One checkpoint.


def test_loss_is_that_of_scoring_and_perplexity_its_exponential(trained, capfd):
    argv = ("evaluate", "--output_dir", trained, "--checkpoint", "latest")
    result = call_json(capfd, *argv, "--split", "train", "--eval_sentences", 0)
    assert result.keys() == {"sentences", "loss", "perplexity", "accuracy"}
    assert result["perplexity"] == pytest.approx(math.exp(result["loss"]))
    folder = trained.parent / "data"
    texts = [(folder / f"{side}.txt").read_text() for side in ("source", "target")]
    translator = t2t_keras.load(trained, "latest")
    scores = translator.score(*(text.splitlines() for text in texts))
    tokens = sum(score.tokens for score in scores)
    nats = -sum(score.log_prob for score in scores) / tokens
    assert result["loss"] == pytest.approx(nats, rel=1e-5)


@pytest.mark.slow
def test_the_default_split_is_test_or_else_dev(trained, capfd, tmp_path):
    """The data of `trained` have train and dev; a copy of them has a test split too."""
    argv = ("evaluate", "--output_dir", trained, "--eval_sentences", 0)
    dev = call_json(capfd, *argv, "--split", "dev")
    assert call(*argv) == 0
    assert "evaluating the dev split: " in capfd.readouterr().err
    assert call_json(capfd, *argv) == dev

    data = shutil.copytree(trained.parent / "data", tmp_path / "data")
    path = data / "translate_text.manifest.json"
    manifest = json.loads(path.read_text())
    manifest["examples"]["test"] = manifest["examples"]["dev"]
    path.write_text(json.dumps(manifest))
    for file in data.glob("translate_text-dev-*"):
        shutil.copy(file, data / file.name.replace("-dev-", "-test-"))
    assert call(*argv, "--data_dir", data) == 0
    assert "evaluating the test split\n" in capfd.readouterr().err


def test_metrics_compare_with_raw_texts_and_the_records_are_decoded(
    trained, capfd, tmp_path
):
    """The records say what is translated, the raw texts what it is compared with."""
    data = shutil.copytree(trained.parent / "data", tmp_path / "data")
    argv = ("evaluate", "--output_dir", trained, "--split", "dev", *FAST)
    argv += ("--data_dir", data, "--output", tmp_path / "dev")

    def written():
        call_json(capfd, *argv)
        names = ("source", "hypothesis", "reference")
        return [(tmp_path / f"dev.{name}").read_text() for name in names]

    sources, outputs, references = written()
    raw = data / "translate_text-dev.targets"
    raw.write_text(raw.read_text().upper())
    manifest = data / "translate_text.manifest.json"
    record = json.loads(manifest.read_text())
    del record["text_sha256"]  # of the texts as they were
    manifest.write_text(json.dumps(record))
    assert written() == [sources, outputs, references.upper()]
    for side in ("sources", "targets"):  # of an earlier version, which had none
        (data / f"translate_text-dev.{side}").unlink()
    assert written() == [sources, outputs, references]


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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.split("\n") if "sacrebleu_none" in line)
    assert row.split()[1] == "100.00" and "tok:none" in row


# All checkpoints.


def test_every_checkpoint_is_evaluated_once(run, capfd, monkeypatch):
    result = call_json(capfd, *every(run))
    points = result["checkpoints"]
    assert [point["step"] for point in points] == [1, 2, 3, 4]
    assert result["best"] == max(points, key=lambda point: point["bleu"])
    argv = ("evaluate", "--output_dir", run, "--split", "dev", *FAST)
    alone = call_json(capfd, *argv, "--checkpoint", 2)
    assert points[1]["bleu"] == pytest.approx(alone["bleu"]["sacrebleu_13a"])
    for name in ("loss", "perplexity", "accuracy"):
        assert points[1][name] == pytest.approx(alone[name], rel=1e-5)
    assert points[0]["loss"] != points[1]["loss"]

    # A new one joins; the others are not touched again.
    copy_checkpoint(run, 4, 5)
    calls = []
    monkeypatch.setattr(
        Evaluator,
        "loss",
        lambda self, *meter, loss=Evaluator.loss: calls.append(1) or loss(self),
    )
    again = call_json(capfd, *every(run))
    assert len(calls) == 1
    assert again["checkpoints"][:4] == points
    assert again["checkpoints"][4] == points[3] | {"step": 5}
    assert call(*every(run)) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["step", "loss"]
    assert [line.split()[0] for line in lines[1:6]] == ["1", "2", "3", "4", "5"]
    assert lines[-1] == f"best: step {again['best']['step']}"


def test_curve_is_in_tensorboard_when_the_checkpoints_were_written(run, capfd):
    points = call_json(capfd, *every(run))["checkpoints"]
    events = EventAccumulator(str(run / "evaluation-dev")).Reload()
    for name in ("bleu", "loss", "perplexity", "accuracy"):
        curve = events.Scalars(f"dev/{name}")
        assert [event.step for event in curve] == [1, 2, 3, 4]
        values = [event.value for event in curve]
        assert values == pytest.approx([point[name] for point in points])
        for event in curve:
            index = run / f"model.ckpt-{event.step}.index"
            assert event.wall_time == pytest.approx(index.stat().st_mtime, abs=1e-3)


def test_other_settings_are_refused(run, capfd):
    assert call(*every(run)) == 0
    flags = ("--decode_hparams", "beam_size=2,extra_length=1", "--tokenize", "none")
    capfd.readouterr()
    assert call(*every(run, *flags)) == 2
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1
    for change in (
        "beam_size was 1, is now 2",
        "sentences was 5, is now all",
        "bleu_tokens was 13a, is now none",
    ):
        assert change in error
    assert "extra_length" not in error
    shutil.rmtree(run / "evaluation-dev")
    loss = ("--eval_sentences", 0)
    result = call_json(capfd, *every(run, *loss))
    assert result["best"]["loss"] == min(p["loss"] for p in result["checkpoints"])


def test_a_training_is_followed_to_its_last_step(run, capfd, monkeypatch):
    monkeypatch.setattr(follow, "_POLL_SECONDS", 0.1)
    set_train_steps(run, 6)
    evaluated = threading.Event()
    add = follow.Curve.add

    def add_and_tell(self, step, *rest):
        add(self, step, *rest)
        if step == 4:
            evaluated.set()

    def go_on():
        evaluated.wait(100)
        for step in (5, 6):
            time.sleep(0.5)
            copy_checkpoint(run, 4, step)

    monkeypatch.setattr(follow.Curve, "add", add_and_tell)
    training = threading.Thread(target=go_on)
    training.start()
    result = call_json(capfd, *every(run, *FAST, "--wait_minutes", 60))
    training.join()
    assert [point["step"] for point in result["checkpoints"]] == [1, 2, 3, 4, 5, 6]


def test_a_training_that_has_yet_to_begin_is_waited_for(run, monkeypatch):
    monkeypatch.setattr(follow, "_POLL_SECONDS", 0.1)
    config, hidden = run / "config.json", run / "hidden.json"
    config.rename(hidden)
    with pytest.raises(UserError, match="is not a run directory"):
        follow.await_run(run, wait_minutes=0.003)
    training = threading.Timer(0.3, hidden.rename, [config])
    training.start()
    assert follow.await_run(run, wait_minutes=1).path == run
    training.join()


def test_a_checkpoint_deleted_meanwhile_is_passed_over(run, capfd, monkeypatch):
    add = follow.Curve.add

    def add_and_delete(self, step, *rest):
        add(self, step, *rest)
        (run / "model.ckpt-2.index").unlink(missing_ok=True)

    monkeypatch.setattr(follow.Curve, "add", add_and_delete)
    assert call(*every(run), "--json") == 0
    captured = capfd.readouterr()
    assert "model.ckpt-2 was deleted" in captured.err
    points = json.loads(captured.out)["checkpoints"]
    assert [point["step"] for point in points] == [1, 3, 4]


def test_a_damaged_checkpoint_is_not_passed_over(run, capfd):
    (run / "model.ckpt-2.index").write_bytes(b"")
    assert call(*every(run)) == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert "model.ckpt-2 cannot be read" in error


def test_figures_of_other_data_are_not_mixed(run, capfd, tmp_path):
    data = Path(json.loads((run / "config.json").read_text())["data_dir"])
    assert call(*every(run)) == 0
    other = shutil.copytree(data, tmp_path / "other")
    manifest = other / "translate_text.manifest.json"
    manifest.write_text(manifest.read_text().replace('"seed": 0', '"seed": 9'))
    assert call(*every(run), "--data_dir", other) == 2
    assert "metrics of other settings: data was" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--output", "x"), "--output does not go with --checkpoint all"),
        (("--language", "fr"), "--language does not go with --checkpoint all"),
    ],
)
def test_flags_that_do_not_go_together(flags, message, capfd):
    assert call("evaluate", "--output_dir", "x", "--checkpoint", "all", *flags) == 2
    assert message in capfd.readouterr().err


def test_flags_that_need_another(run, capfd):
    assert call("evaluate", "--output_dir", run, "--wait_minutes", 1) == 2
    assert "--wait_minutes needs --checkpoint all" in capfd.readouterr().err
    assert (
        call("evaluate", "--output_dir", run, "--output", "x", "--eval_sentences", 0)
        == 2
    )
    assert "there is nothing to write" in capfd.readouterr().err
    files = ("--hypotheses", "x", "--references", "y")
    assert call("evaluate", *files, "--checkpoint", "all") == 2
    assert "--checkpoint has no effect with" in capfd.readouterr().err
    for checkpoint in run.glob("model.ckpt-*"):
        checkpoint.unlink()
    assert call(*every(run)) == 2
    assert "has no checkpoint" in capfd.readouterr().err


# Trees.
