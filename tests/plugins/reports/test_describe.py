"""`t2t describe` of a run or an export in the place of a set."""

import json

import pytest
from helpers.command_line import run, run_json, run_refused

SETTINGS = {
    "version": "0.1.0",
    "problem": "translate_text",
    "languages": ["en", "de"],
    "hparams": {"num_layers": 4, "dropout": 0.1},
    "decoding": {"beam_size": 4, "alpha": 0.6},
    "verified": 20,
    "identical": 19,
    "of_one_format": 1,
}


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "export"
    path.mkdir()
    (path / "saved_model.pb").write_bytes(bytes(1234))
    return path


def test_an_export_is_described_by_its_settings(export, capfd):
    rows = {"format": "savedmodel", "bytes": "1,234"}
    assert run_json(capfd, "describe", export) == {"export": rows}  # of another program
    (export / "t2t_export.json").write_text(json.dumps(SETTINGS))
    rows = run_json(capfd, "describe", export)["export"]
    assert rows["languages"] == "en → de" and rows["hparams"] == "num_layers=4"
    assert rows["verified"] == "19 of 20 outputs equal the run's"
    assert run("describe", "--model", export) == 0
    assert "problem     translate_text\n" in capfd.readouterr().out
    message = run_refused(capfd, "describe", export, "--hours", "2")
    assert "--hours has no effect with an export" in message


def test_a_run_is_described_with_its_training(trained_run, capfd):
    rows = run_json(capfd, "describe", trained_run)["run"]
    assert rows["problem"] == "translate_text" and rows["steps"].startswith("4 of ")
    assert rows["checkpoints"] == "4, up to step 4"
    assert rows["dev, newest"].startswith("step 4, nll ")


def test_a_registered_set_precedes_a_directory(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert run_json(capfd, "describe", "tiny")["run"] is None
