"""The processes of trials: their failures, and signals."""

import os
import signal

import pytest
from helpers.errors import refused
from helpers.sweeps import sweep_settings

pytest.importorskip("optuna", reason="optuna is not installed")

from t2t_keras.plugins.sweep import scheduler as scheduling
from t2t_keras.plugins.sweep.scheduler import Scheduler
from t2t_keras.plugins.sweep.study import SweepStudy

# A trial that fails, one that is killed, and one that is trained.
PROGRAM = """
import os, sys
number = sys.argv[2]
if number == "0":
    print("progress")
    sys.exit("step 7: the training has diverged")
if number == "1":
    os.kill(os.getpid(), 9)
from pathlib import Path
from t2t_keras.plugins.sweep.study import SweepStudy
study = SweepStudy.open(Path(sys.argv[1]))
study.report(2, {10: 1.5, 20: float("nan")})
study.complete(2, 1.5)
"""


def sweep(directory, count, on_start=lambda trial: None, workers=2):
    """Runs a sweep; returns its trials, the numbers that ended, and the signal."""
    study = SweepStudy.create(directory, sweep_settings())
    ended = []
    scheduler = Scheduler(
        directory, study, workers, on_start, lambda trial: ended.append(trial.index)
    )
    scheduler.run(count)
    return study.trials(), sorted(ended), scheduler.signal


def test_failures_do_not_end_a_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduling, "_PROGRAM", PROGRAM)
    trials, ended, _ = sweep(tmp_path, 3)
    assert ended == [0, 1, 2]
    assert [trial.state for trial in trials] == ["failed", "failed", "complete"]
    assert trials[0].error == "step 7: the training has diverged"
    assert trials[1].error == "the process was killed by SIGKILL"
    assert (trials[2].score, trials[2].best_step) == (1.5, 10)
    assert (tmp_path / "trial-0000" / "process.log").read_text().startswith("progress")


REFUSED = """
import sys
print("--data_dir: there is no d")
sys.exit(2)
"""
# Trial 0 begins and fails then; the others are refused before they begin.
REFUSED_LATER = """
import sys
if sys.argv[2] == "0":
    from pathlib import Path
    from t2t_keras.plugins.sweep.study import SweepStudy
    SweepStudy.open(Path(sys.argv[1])).begin(0)
    print("step 7: the training has diverged")
else:
    print("num_heads: must be at least 1")
sys.exit(2)
"""


def test_what_refuses_every_trial_ends_the_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduling, "_PROGRAM", REFUSED)
    refused("^trial 0: --data_dir: there is no d$", sweep, tmp_path, 3)
    study = SweepStudy.create(tmp_path, sweep_settings())
    assert {trial.state for trial in study.trials()} == {"running"}
    # A trial that had begun shows the same, as after a change of the environment.
    study.begin(0)
    refused("^trial 0: --data_dir: there is no d$", sweep, tmp_path, 3)
    assert {trial.state for trial in study.trials()} == {"running"}
    monkeypatch.setattr(scheduling, "_PROGRAM", PROGRAM)
    trials, _, _ = sweep(tmp_path, 3)
    assert [trial.state for trial in trials] == ["failed", "failed", "complete"]


def test_a_trial_that_another_process_still_trains_stays_unfinished(
    tmp_path, monkeypatch
):
    program = "import sys; print('in use'); sys.exit(75 if sys.argv[2] == '1' else 1)"
    monkeypatch.setattr(scheduling, "_PROGRAM", program)
    refused("^trial 1: in use$", sweep, tmp_path, 3, workers=1)
    states = [t.state for t in SweepStudy.create(tmp_path, sweep_settings()).trials()]
    assert states == ["failed", "running"]


def test_several_refusals_in_a_row_end_the_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduling, "_PROGRAM", REFUSED_LATER)
    message = "^trial 3: num_heads: must be at least 1$"
    refused(message, sweep, tmp_path, 9, workers=1)
    states = [t.state for t in SweepStudy.create(tmp_path, sweep_settings()).trials()]
    assert states == ["failed", "failed", "failed", "running"]


def test_a_signal_is_passed_on_and_the_trial_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(
        scheduling, "_PROGRAM", "import signal; print('waits'); signal.pause()"
    )

    def interrupt(trial):
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    trials, ended, received = sweep(tmp_path, 3, interrupt)
    assert (received, ended) == (signal.SIGINT, [])
    assert signal.getsignal(signal.SIGINT) is handler
    assert [trial.state for trial in trials] == ["running"]
    monkeypatch.setattr(scheduling, "_PROGRAM", PROGRAM)
    resumed, ended, _ = sweep(tmp_path, 1)
    assert ended == [0]
    assert resumed[0].hparams == trials[0].hparams


def test_a_signal_during_a_proposal_reaches_the_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(
        scheduling, "_PROGRAM", "import signal; print('waits'); signal.pause()"
    )
    start_next = SweepStudy.start_next

    def interrupted(study):
        os.kill(os.getpid(), signal.SIGINT)
        return start_next(study)

    monkeypatch.setattr(SweepStudy, "start_next", interrupted)
    trials, ended, received = sweep(tmp_path, 3)
    assert (received, ended) == (signal.SIGINT, [])
    assert [trial.state for trial in trials] == ["running"]


def test_each_process_has_its_gpu_and_its_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(scheduling, "num_cores", lambda: 9)
    study = SweepStudy.create(tmp_path, sweep_settings())
    runner = Scheduler(tmp_path, study, 2, print, print)
    assert runner._environment(0)["TF_NUM_INTRAOP_THREADS"] == "4"
    monkeypatch.setattr(scheduling, "visible_gpus", lambda: ["GPU-a", "GPU-b"])
    names = [runner._environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(3)]
    assert names == ["GPU-a", "GPU-b", "GPU-a"]
