"""The process of a trial: an earlier one that still has its run directory."""

import json

import pytest
from helpers.errors import refused
from helpers.sweeps import sweep_settings

pytest.importorskip("optuna", reason="optuna is not installed")

from t2t_keras.files.atomic import OccupiedDirectory
from t2t_keras.plugins.sweep import remote_trial, trial_process
from t2t_keras.run.directory import training_lock
from t2t_keras.training.trials import OCCUPIED, REFUSED


@pytest.fixture
def clock(monkeypatch):
    """The seconds that were slept, which pass at once."""
    seconds = [0.0]

    def sleep(duration):
        seconds[0] += duration

    monkeypatch.setattr(trial_process.time, "sleep", sleep)
    monkeypatch.setattr(trial_process.time, "monotonic", lambda: seconds[0])
    return seconds


def test_a_trial_waits_until_an_earlier_process_has_ended(clock, capsys):
    def begin():
        if clock[0] < 100:
            raise OccupiedDirectory("process 7 on host trains here")
        return "result"

    assert trial_process.when_free(begin) == "result"
    sentence = "waiting for its end: process 7 on host trains here\n"
    assert capsys.readouterr().err == sentence

    def begin_never():
        raise OccupiedDirectory("process 7 on host trains here")

    refused("^process 7 on host trains here$", trial_process.when_free, begin_never)
    assert clock[0] == 220


def test_an_occupied_run_directory_does_not_count_as_refused(
    data_dir, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(trial_process, "_SECONDS_TO_END", 0)
    monkeypatch.setenv("TF_CPU_ALLOCATOR_USE_BFC", "true")

    def exit_status(**changes):
        values = {"problem": "translate_text", "data_dir": str(data_dir)} | changes
        settings = json.dumps(sweep_settings(**values).to_json())
        with pytest.raises(SystemExit) as raised, training_lock(tmp_path):
            remote_trial.main(settings, "{}", str(tmp_path))
        return raised.value.code

    assert exit_status() == OCCUPIED
    assert "another training writes to" in capsys.readouterr().err
    assert exit_status(problem="translate_tekst") == REFUSED
