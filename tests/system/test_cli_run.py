"""The command line from text to an exported model, learnt next to nothing."""

import contextlib
import dataclasses
import functools
import io
import json
import math
import re
import shutil
import sys
from pathlib import Path

import pytest
from helpers.command_line import run, run_json, run_refused, standard_input, write
from helpers.small_run import assert_same, replace_updates, weights

import t2t_keras
from t2t_keras.cli import translation

SOURCES = ["ein Hund", "", "zwei Hunde  bellen", "🙂 Katze", "die Katze schläft lange"]

HPARAMS = {"num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}
HPARAMS |= {"batch_tokens": 256}


loaded = functools.cache(t2t_keras.load)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with data and a run directory."""
    folder = tmp_path_factory.mktemp("trained")
    words = ("Hund", "Katze", "Maus", "Haus", "Baum")
    lines = [f"{a} {b} {c}" for a in words for b in words for c in words]
    source = write(folder / "source", *lines)
    target = write(folder / "target", *(line[::-1] for line in lines))
    files = [
        word
        for split in ("train", "dev", "test")
        for word in (f"--{split}_source", source, f"--{split}_target", target)
    ]
    problem = ("--problem", "translate_text", "--data_dir", folder / "data")
    hparams = ",".join(f"{name}={value}" for name, value in HPARAMS.items())
    assert run("datagen", *problem, *files, "--vocab_size", 320, "--workers", 1) == 0
    train = ("train", *problem, "--hparams_set", "tiny", "--hparams", hparams)
    often = ("--save_every", 2, "--eval_every", 4, "--eval_sentences", 3)
    run_dir = ("--output_dir", folder / "run")
    with open(folder / "train.json", "w") as file, contextlib.redirect_stdout(file):
        assert run(*train, *run_dir, *often, "--train_steps", 4, "--json") == 0
    result = json.loads((folder / "train.json").read_text())
    assert (result["step"], result["dev_average"]["checkpoints"]) == (4, 2)
    assert result["loss"] > 0 and set(result["dev_metrics"]) == {"bleu"}
    assert run("average", *run_dir, "--last", 2) == 0
    return folder


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch):
    """The commands load a run once, whose graphs are traced once."""
    monkeypatch.setattr(translation, "load", loaded)


@pytest.fixture(scope="module")
def translator(trained):
    from t2t_keras.run.directory import RunDirectory

    return RunDirectory(trained / "run").translator()


def test_training_explains_a_change_of_a_set_of_tensor2tensor(
    trained, tmp_path, capfd, monkeypatch
):
    replace_updates(monkeypatch)
    problem = ("--problem", "translate_text", "--data_dir", trained / "data")
    sizes = "num_layers=1,d_model=16,d_ff=16,num_heads=2,batch_tokens=64"
    hparams = ("--hparams_set", "transformer_tiny", "--hparams", f"dropout=0.2,{sizes}")
    steps = ("--train_steps", 1, "--eval_sentences", 0)
    train = ("train", *problem, *hparams, "--output_dir", tmp_path, *steps)
    assert run(*train) == 0
    remark = "tensor2tensor's Transformer ignores dropout; here, dropout is its "
    assert capfd.readouterr().err.count(remark) == 1


@pytest.mark.slow
def test_training_from_python_matches_the_command(trained, tmp_path):
    often = {"save_every": 2, "eval_every": 4, "eval_sentences": 3}
    arguments = {"hparams": HPARAMS, "train_steps": 4} | often
    arguments |= {"data_dir": trained / "data", "output_dir": tmp_path}
    result = t2t_keras.train("translate_text", "tiny", **arguments).result
    expected = json.loads((trained / "train.json").read_text())
    assert list(result.to_dict()) == list(expected)
    expected["target_tokens_per_s"] = result.target_tokens_per_s
    assert result.to_dict() == expected
    assert_same(weights(tmp_path), weights(trained / "run"))
    for name in ("config.json", "hparams.json"):
        assert (tmp_path / name).read_text() == (trained / "run" / name).read_text()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_training_that_a_signal_ended_has_its_exit_code(
    name, trained, capfd, monkeypatch, tmp_path
):
    from t2t_keras.training.trainer import Trainer

    figures = {"step": 3, "stopped_by": name}
    monkeypatch.setattr(Trainer, "__init__", lambda self, *args: None)
    monkeypatch.setattr(Trainer, "train", lambda self: figures)
    problem = ("--problem", "translate_text", "--data_dir", trained / "data")
    argv = ("train", *problem, "--hparams_set", "tiny", "--output_dir", tmp_path)
    assert run(*argv) == {"SIGTERM": 143, "SIGINT": 130, "SIGHUP": 129}[name]
    assert f"t2t train: {name}: saved step 3" in capfd.readouterr().err


def test_example_sources(trained, tmp_path):
    from t2t_keras.run.directory import RunDirectory

    opened = RunDirectory(trained / "run")
    lines = (trained / "source").read_text().splitlines()
    for count, expected in ((5, lines[::25]), (1000, lines), (0, [])):
        assert opened.example_sources(count) == expected
    moved = dataclasses.replace(opened.config, data_dir=str(tmp_path))
    opened.config = moved  # there are no data
    assert len(set(opened.example_sources(7))) == 7
    for pattern in ("*.manifest.json", "translate_text-train*"):
        for file in (trained / "data").glob(pattern):
            shutil.copy(file, tmp_path)
    sources = opened.example_sources(9)
    assert len(sources) == 9 and set(sources) <= set(lines)


def test_translate_standard_streams(trained, translator, capfd, tmp_path):
    text = "\n".join(SOURCES)  # the last line lacks its end
    (tmp_path / "in").write_text(text)
    with standard_input(tmp_path / "in"):
        result = run_json(capfd, "translate", "--output_dir", trained / "run")
    assert result["sentences"] == len(SOURCES)
    with standard_input(tmp_path / "in"):
        assert run("translate", "--output_dir", trained / "run") == 0
    lines = capfd.readouterr().out.split("\n")
    assert lines == [*translator.translate(SOURCES), ""]


def test_translate_interactively(trained, translator, capfd, monkeypatch):
    terminal = io.StringIO("ein Hund\nzwei Hunde\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    assert run("translate", "--output_dir", trained / "run") == 0
    captured = capfd.readouterr()
    expected = translator.translate(["ein Hund", "zwei Hunde"])
    assert captured.out.split("\n") == [*expected, ""]
    assert captured.err.count("> ") == 3
    assert "sentences" not in captured.err  # no progress


def test_translate_reports_its_progress(trained, capfd, monkeypatch, tmp_path):
    from t2t_keras import console

    monkeypatch.setattr(translation, "MAX_LINES", 2)
    monkeypatch.setattr(console, "_SECONDS_BETWEEN_LINES", -1.0)
    source = write(tmp_path / "in", *SOURCES)
    output = tmp_path / "out"
    argv = ("translate", "--output_dir", trained / "run", "--output", output)
    rate = r"[\d,.]+ sentences/s"
    for total, input_flags in ((" of 5", ("--input", source)), ("", ())):
        capfd.readouterr()
        with standard_input(source):
            assert run(*argv, *input_flags) == 0
        lines = [x for x in capfd.readouterr().err.splitlines() if "sentences" in x]
        eta = r", ETA \d+ s" if total else ""
        pattern = rf"translate: (\d){total} sentences \({rate}{eta}\)"
        counts = [int(re.fullmatch(pattern, line)[1]) for line in lines[:-1]]
        # The second line is blank, and done first; at the end of a file comes the sum.
        # With one core, lines 3 and 4 are one batch.
        assert counts == sorted(counts)
        assert {*counts, 3} == set(range(1, 5 if total else 6))
        pattern = rf"translate: 5 sentences in [\d.]+ s \({rate}\)"
        assert re.fullmatch(rf"{pattern}|translate: 5 sentences", lines[-1])


def test_score(trained, translator, capfd, tmp_path):
    source = write(tmp_path / "a", "Hund Maus", "Haus")
    target = write(tmp_path / "b", "suaM dnuH", "suaH")
    argv = ("score", "--output_dir", trained / "run", "--source", source)
    result = run_json(capfd, *argv, "--target", target, "--output", tmp_path / "s")
    scores = translator.score(["Hund Maus", "Haus"], ["suaM dnuH", "suaH"])
    assert result["log_prob"] == pytest.approx(sum(s.log_prob for s in scores))
    assert result["tokens"] == sum(s.tokens for s in scores)
    nats = -result["log_prob"] / result["tokens"]
    assert nats == pytest.approx(math.log(result["perplexity"]))
    rows = [line.split("\t") for line in (tmp_path / "s").read_text().splitlines()]
    assert [int(row[1]) for row in rows] == [s.tokens for s in scores]
    short_file = write(tmp_path / "c", "suaH")
    message = run_refused(capfd, *argv, "--target", short_file)
    assert "differ in their number of lines, 1 and 2" in message


def test_evaluate_a_split(trained, capfd, tmp_path):
    """The scores match the files that it writes."""
    argv = ("evaluate", "--output_dir", trained / "run", "--eval_sentences", 9)
    greedy = ("--beam_size", 1, "--output", tmp_path / "test")
    result = run_json(capfd, *argv, *greedy)
    assert {"nll", "perplexity", "accuracy"} <= result.keys()
    files = [tmp_path / f"test.{name}" for name in ("hypothesis", "reference")]
    evaluate_files = ("evaluate", "--hypotheses", files[0], "--references", files[1])
    assert run_json(capfd, *evaluate_files) == {"bleu": result["bleu"]}
