"""`t2t config RUN` writes a file with which `t2t train` makes the same run."""

import dataclasses
import json
import shutil
import tomllib

from helpers.command_line import run, run_json, run_refused
from helpers.json_edits import edit_json
from helpers.small_data import write_pairs
from helpers.small_run import replace_updates

from t2t_keras.run.config import RunConfig
from t2t_keras.training.trainer import Trainer

TRAIN = ["train", "--problem", "translate_text", "--hparams_set", "tiny"]
CHANGES = "num_layers=1,d_model=16,d_ff=16,num_heads=2,warmup_steps=10,batch_tokens=256"


def config_of(path):
    """The configuration but for its checksum, and the hyper-parameters."""
    config = dataclasses.asdict(RunConfig.read(path))
    return config, json.loads((path / "hparams.json").read_text())


def test_a_run_is_repeated(data_dir, tmp_path, capfd, monkeypatch):
    replace_updates(monkeypatch)
    flags = ["--train_steps", 2, "--seed", 5, "--accumulate", 2, "--eval_sentences", 0]
    options = ["--keep", 3, "--average_last", 0, "--save_minutes", 7.5]
    options += ["--bleu_tokenize", "char"]
    folders = ["--data_dir", data_dir, "--output_dir", tmp_path / "first"]
    arguments = [*TRAIN, "--hparams", CHANGES, *flags, *options, *folders]
    with monkeypatch.context() as patch:  # its files are written, no step is done
        result = {"step": 0, "stopped_by": "train_steps"}
        patch.setattr(Trainer, "train", lambda self: result)
        assert run(*map(str, arguments)) == 0
    file = tmp_path / "repeat.toml"
    assert run("config", tmp_path / "first", "--output", file) == 0
    second = tmp_path / "second"
    assert run("train", "--config", file, "--output_dir", second) == 0
    assert config_of(tmp_path / "first") == config_of(second)
    assert config_of(second)[0]["accumulate"] == 2
    assert (second / "metrics.jsonl").exists()
    assert (second / "model.ckpt-2.index").exists()

    printed = run_json(capfd, "config", tmp_path / "first")
    assert tomllib.loads(printed["text"]) == printed["config"]
    assert printed["config"]["train"] == {
        "seed": 5,
        "accumulate": 2,
        "save_minutes": 7.5,
        "keep": 3,
        "eval_sentences": 0,
        "bleu_tokenize": "char",
        "average_last": 0,
    }
    assert printed["config"]["hparams"]["train_steps"] == 2


def test_a_tuned_run_of_an_imported_model_is_repeated(
    data_dir, tmp_path, capfd, monkeypatch
):
    replace_updates(monkeypatch)
    imported = tmp_path / "imported"
    flags = ["--data_dir", data_dir, "--train_steps", 1, "--eval_sentences", 0]
    assert run(*TRAIN, "--hparams", CHANGES, *flags, "--output_dir", imported) == 0
    edit_json(imported / "config.json", hparams_set="of another program")
    origin = ["--init_from", imported, "--hparams", "dropout=0.3"]
    assert run(*TRAIN[:3], *origin, *flags, "--output_dir", tmp_path / "tuned") == 0
    file = tmp_path / "repeat.toml"
    assert run("config", tmp_path / "tuned", "--output", file) == 0
    written = tomllib.loads(file.read_text())
    assert "hparams_set" not in written
    assert written["hparams"] == {"dropout": 0.3}
    repeated = tmp_path / "repeated"
    assert run("train", "--config", file, "--output_dir", repeated) == 0
    assert config_of(tmp_path / "tuned") == config_of(repeated)
    shutil.rmtree(imported)
    message = run_refused(capfd, "config", repeated)
    assert "--init_from: " in message and "is neither a run nor a check" in message


def test_the_file_says_what_is_missing(trained_run, capfd, tmp_path):
    assert run("config", tmp_path) == 2
    assert "is not a run directory" in capfd.readouterr().err
    assert run("config", trained_run) == 2  # like a run of `t2t import`
    assert "has no training, as after `t2t import`" in capfd.readouterr().err


def test_the_data_are_named_by_the_flags_of_their_problem(
    trained_run, data_dir, capfd, tmp_path
):
    path = shutil.copytree(trained_run, tmp_path / "run")
    manifest = data_dir / "translate_text.manifest.json"
    shutil.copy(manifest, tmp_path / "parsing_wsj.manifest.json")
    changes = {"problem": "parsing_wsj", "data_dir": str(tmp_path), "batch_parts": 1}
    edit_json(path / "config.json", **changes, hparams_set="tiny")
    text = run_json(capfd, "config", path)["text"]
    assert "For `t2t datagen`, add what names the data: treebank, train_trees," in text
    assert "train_source" not in text


def test_the_data_are_made_again(trained_run, capfd, tmp_path):
    """With the sources, which the file does not name."""
    files = write_pairs(tmp_path)
    sources = ["--train_source", files.source_path, "--train_target", files.target_path]
    flags = ["--seed", 3, "--dev_size", 25, "--test_size", 40, "--vocab_size", 310]
    flags += ["--max_length", 9, "--clean", "ratio=9.0", "--languages", "en-de"]
    data = ["datagen", "--problem", "translate_text", "--data_dir", tmp_path / "data"]
    assert run(*data, *flags, *sources, "--workers", 1) == 0
    path = shutil.copytree(trained_run, tmp_path / "run")
    changes = {"data_dir": str(tmp_path / "data"), "batch_parts": 1}
    edit_json(path / "config.json", **changes, hparams_set="tiny")
    file = tmp_path / "repeat.toml"
    assert run("config", path, "--output", file) == 0
    again = ["--config", file, "--data_dir", tmp_path / "again", "--workers", 1]
    assert run("datagen", *again, *sources) == 0
    for written in (tmp_path / "data").iterdir():
        if written.suffix != ".lock":
            copy = tmp_path / "again" / written.name
            assert copy.read_bytes() == written.read_bytes(), written.name
