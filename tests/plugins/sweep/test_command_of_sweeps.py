"""`t2t sweep`: mistakes, and a whole sweep that is killed and resumed."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from helpers.command_line import run_refused
from helpers.json_edits import edit_json
from helpers.sweeps import sweep_flags
from helpers.training_process import MAIN, assert_same_end

from t2t_keras.plugins.sweep import command

RANGES = """
from t2t_keras import register_ranged_hparams

@register_ranged_hparams
def mine(rhp):
    '''My own.'''
    rhp.set_float("dropout", 0.0, 0.5)
    rhp.set_float("learning_rate", 0.5, 2.0, scale=rhp.LOG_SCALE)

@register_ranged_hparams
def misspelt(rhp):
    rhp.set_float("dropuot", 0.0, 0.5)

@register_ranged_hparams
def outside(rhp):
    rhp.set_float("dropout", 0.0, 1.5)
"""


@pytest.fixture
def usr_dir(tmp_path):
    path = tmp_path / "usr"
    path.mkdir()
    (path / "my_own_ranges.py").write_text(RANGES)
    return path


def flags(data_dir, output_dir, usr_dir, **changes):
    ranges = changes.pop("ranges", "mine")
    return sweep_flags(ranges, data_dir, output_dir, usr_dir, **changes)


def test_mistakes_are_reported_at_once(capfd, data_dir, tmp_path, usr_dir, monkeypatch):
    pytest.importorskip("optuna", reason="optuna is not installed")
    output_dir = tmp_path / "sweep"

    def sentence(data=data_dir, **changes):
        arguments = flags(data, output_dir, usr_dir, **changes)
        return run_refused(capfd, "sweep", *arguments)

    assert "ranges: there is no 'mien'; did you mean 'mine'" in sentence(ranges="mien")
    message = sentence(ranges="misspelt")
    assert (
        "--ranges 'misspelt': hparams: there is no option 'dropuot'; did you" in message
    )
    assert "dropout must be at least 0 and below 1" in sentence(ranges="outside")
    message = sentence(hparams="dropout=0.2")
    assert "--hparams: 'dropout' has a range in 'mine'" in message
    assert "keep must be at least 1" in sentence(keep=0)
    message = sentence(best_by="metric")
    assert "best_by=metric needs --eval_sentences above 0" in message
    copy = shutil.copytree(data_dir, tmp_path / "data")
    edit_json(copy / "translate_text.manifest.json", examples={"train": 320, "dev": 0})
    assert "has no dev split" in sentence(copy)
    output_dir.mkdir()
    (output_dir / "study.log").write_text("text" * 1000)
    assert "study.log cannot be used as a study of Optuna" in sentence()
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert "TF_CONFIG names the processes of one training" in sentence()


def test_without_optuna_the_extra_is_named(capfd, monkeypatch, data_dir, tmp_path):
    def refuse(extra, purpose, *modules):
        assert (extra, modules) == ("sweep", ("optuna",))
        raise command.UserError(f"{purpose} needs optuna")

    monkeypatch.setattr(command, "require_extra", refuse)
    arguments = flags(data_dir, tmp_path / "sweep", tmp_path)
    assert "t2t sweep needs optuna" in run_refused(capfd, "sweep", *arguments[:-8])


def start(directory, data_dir, usr_dir, stderr=None, **changes):
    arguments = flags(data_dir, directory, usr_dir, **changes)
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, "sweep", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def ended(process):
    output, _ = process.communicate(timeout=1500)
    return json.loads(output.splitlines()[-1])


def kill_at(process, run_dir, signum):
    """Kills a sweep when a trial has written a checkpoint."""
    while process.poll() is None and not (run_dir / "model.ckpt-5.index").exists():
        time.sleep(0.005)
    os.kill(process.pid, signum)
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"startup_trials": 1}, {"startup_trials": 3, "workers": 2}]
)
def test_a_killed_sweep_ends_as_one_that_was_not(data_dir, tmp_path, usr_dir, changes):
    """Trials that depend on each other, and trials at random, two at a time."""
    pytest.importorskip("optuna", reason="optuna is not installed")
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    undisturbed = ended(start(whole, data_dir, usr_dir, **changes))
    for trial, signum in ((1, signal.SIGKILL), (2, signal.SIGTERM)):
        process = start(killed, data_dir, usr_dir, **changes)
        kill_at(process, killed / f"trial-{trial:04}", signum)
    result = ended(start(killed, data_dir, usr_dir, **changes))
    assert result["trials"] == undisturbed["trials"]
    assert sorted(trial["trial"] for trial in result["trials"]) == [0, 1, 2]
    complete = [x["trial"] for x in result["trials"] if x["state"] == "complete"]
    assert len(complete) >= 2
    for index in complete:
        name = f"trial-{index:04}"
        assert_same_end(whole / name, killed / name, step=20)
    assert (killed / "page.html").read_text().count("<svg") == 4


@pytest.mark.slow
def test_two_commands_share_a_sweep(data_dir, tmp_path, usr_dir):
    """Each trial is trained once, and both print all of them and what comes next."""
    pytest.importorskip("optuna", reason="optuna is not installed")
    changes = {"trials": 4, "startup_trials": 4}
    alone = ended(start(tmp_path / "alone", data_dir, usr_dir, **changes))
    shared = tmp_path / "shared"
    processes = []
    for _ in range(2):
        process = start(shared, data_dir, usr_dir, stderr=subprocess.PIPE, **changes)
        processes.append(process)
    results = []
    begun = []
    for process in processes:
        output, errors = process.communicate(timeout=1500)
        results.append(json.loads(output.splitlines()[-1]))
        begun.append(re.findall(r"^trial (\d) has", errors, re.MULTILINE))
    assert results[0] == results[1]
    assert results[0]["trials"] == alone["trials"]
    assert {trial["state"] for trial in alone["trials"]} == {"complete"}
    assert all(begun) and sorted(begun[0] + begun[1]) == ["0", "1", "2", "3"]
    words = shlex.split(results[0]["compare"])
    assert words[:2] == ["t2t", "compare"]
    argv = [sys.executable, "-c", MAIN, *words[1:], "--json"]
    output = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
    comparison = json.loads(output)
    assert comparison["baseline"].endswith(f"trial-{alone['trials'][1]['trial']:04}")
