"""What `t2t train` checks at its beginning, and prints at its end."""

import dataclasses
import json

import pytest
from helpers.command_line import run, run_refused
from helpers.errors import refused

import t2t_keras
from t2t_keras.cli.training import Train
from t2t_keras.run.config import RunConfig
from t2t_keras.training.result import TrainResult


def test_the_end_of_a_training_does_not_repeat_its_log():
    result = TrainResult(step=1200, stopped_by="train_steps", dev_nll=0.07673)
    shown = Train(output_dir="run").show(result.to_dict())
    assert shown == "run: 1,200 steps, ended by train_steps"


PROBLEM = """
from t2t_keras import Problem, register_problem

@register_problem
def remembered_pairs():
    return Problem(summary="")
"""


def test_the_folder_of_a_run_is_used_when_it_is_resumed(tmp_path, capfd, registrations):
    folder = tmp_path / "remembered"
    folder.mkdir()
    (folder / "remembered_pairs.py").write_text(PROBLEM)
    output_dir = tmp_path / "run"
    output_dir.mkdir()
    config = RunConfig(
        problem="remembered_pairs",
        hparams_set="tiny",
        data_dir=str(tmp_path),
        seed=1,
        source_vocab="a.spm",
        target_vocab="a.spm",
        vocab_sha256={},
        usr_dir=str(folder),
    )
    command = ["train", "--problem", "remembered_pairs", "--hparams_set", "tiny"]
    command += ["--data_dir", tmp_path, "--output_dir", output_dir]
    assert run(*command) == 2
    assert "there is no 'remembered_pairs'" in capfd.readouterr().err
    (output_dir / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
    assert run(*command) == 2
    # The problem is known now, and its data are what is missing.
    assert "t2t datagen" in capfd.readouterr().err
    registrations.restore()  # as in a process that has not imported it
    arguments = {"data_dir": tmp_path, "output_dir": output_dir}
    refused("t2t datagen", t2t_keras.train, "remembered_pairs", "tiny", **arguments)


@pytest.mark.parametrize("name", ["my_callbacks", ":board", "my_callbacks:"])
def test_callbacks_need_a_module_and_a_function(name, data_dir, tmp_path, capfd):
    command = ("train", "--problem", "translate_text", "--hparams_set", "tiny")
    folders = ("--data_dir", data_dir, "--output_dir", tmp_path / "run")
    message = run_refused(capfd, *command, *folders, "--callbacks", name)
    expected = f"--callbacks {name}: give MODULE:FUNCTION, such as my_callbacks:board"
    assert expected in message
