"""The processes of trials: their failures, their end, and signals."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from helpers.errors import refused
from helpers.sweeps import sweep_settings
from helpers.waiting import wait_until

pytest.importorskip("optuna", reason="optuna is not installed")

from t2t_keras.plugins.sweep import trial as trials_of_sweeps
from t2t_keras.plugins.sweep.study import SweepStudy
from t2t_keras.plugins.sweep.trial import TrialRunner

# Instead of `t2t`: what a training prints and writes, by the number of its trial.
HEAD = """
import json, os, pathlib, signal, sys, time
flags = dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert sys.argv[1] == "train"
run = pathlib.Path(flags["--output_dir"])
number = int(run.name[-4:])

def evaluate(step, score):
    line = {"step": step, "kind": "dev", "nll": 1.0, "bleu": score}
    with (run / "metrics.jsonl").open("a") as file:
        print(json.dumps(line), file=file)

def refuse(message):
    print("t2t train: error: " + message, file=sys.stderr)
    sys.exit(2)
"""
PAUSE = "print('waits', flush=True); signal.pause()"


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Runs a sweep with a program for each trial."""

    def run(program, count, on_start=lambda trial: None, workers=1, **changes):
        command = ("-P", "-c", HEAD + program)
        monkeypatch.setattr(trials_of_sweeps, "_TRAIN", command)
        study = SweepStudy.open(tmp_path, sweep_settings(workers=workers, **changes))
        ended = []
        runner = TrialRunner(
            study, workers, on_start, lambda trial: ended.append(trial.index)
        )
        runner.run(count)
        return study.trials(), sorted(ended), runner.signal

    return run


def states(directory):
    study = SweepStudy.open(directory, sweep_settings())
    return [trial.state for trial in study.trials()]


FAILURES = """
if number == 0:
    evaluate(20, 1.0)
    refuse("step 27: the training has diverged")
if number == 1:
    os.kill(os.getpid(), 9)
if number == 2:
    refuse("num_heads: must be at least 1")
evaluate(20, 1.5)
evaluate(40, float("nan"))
"""


def test_failures_do_not_end_a_sweep(sweep, tmp_path):
    trials, ended, _ = sweep(FAILURES, 4, workers=2)
    assert ended == [0, 1, 2, 3]
    assert [trial.state for trial in trials] == [*["failed"] * 3, "complete"]
    assert trials[0].error == "step 27: the training has diverged"
    assert trials[1].error == "the process was killed by SIGKILL"
    assert trials[2].error == "num_heads: must be at least 1"
    assert (trials[3].score, trials[3].best_step) == (1.5, 20)
    log = (tmp_path / "trial-0000" / "process.log").read_text()
    assert log == "t2t train: error: step 27: the training has diverged\n"


def test_what_refuses_the_first_trial_ends_the_sweep(sweep, tmp_path):
    refused(
        "^trial 0: --data_dir: there is no d$",
        sweep,
        "refuse('--data_dir: there is no d')",
        3,
    )
    assert states(tmp_path) == ["running"]
    trials, _, _ = sweep(FAILURES, 4)
    assert [trial.state for trial in trials] == [*["failed"] * 3, "complete"]


def test_the_training_has_the_settings_of_the_trial(sweep, tmp_path):
    program = """
print(json.dumps([flags, os.environ["TF_NUM_INTRAOP_THREADS"]]), flush=True)
evaluate(20, 1.0)
"""
    options = {"eval_every": 20, "keep": 1}
    (trial,), _, _ = sweep(program, 1, hparams="d_ff=64", options=options)
    text = (tmp_path / "trial-0000" / "process.log").read_text()
    flags, threads = json.loads(text)
    hparams = [f"{name}={value}" for name, value in trial.hparams.items()]
    assert flags == {
        **{"--problem": "p", "--hparams_set": "tiny", "--data_dir": "d"},
        "--hparams": ",".join(["d_ff=64", *hparams]),
        "--output_dir": str(tmp_path / "trial-0000"),
        **{"--train_steps": "40", "--seed": "3"},
        **{"--eval_every": "20", "--keep": "1"},
    }
    assert int(threads) >= 1


def test_a_trial_behind_two_others_ends_at_an_evaluation(sweep):
    program = """
evaluate(20, 10.0 - number)
if number == 2:
    evaluate(30, 100.0)
    signal.pause()
evaluate(40, 10.0 - number)
"""
    trials, ended, _ = sweep(program, 3)
    assert [trial.state for trial in trials] == ["complete", "complete", "pruned"]
    # What it reports later does not count, however late the end is noticed.
    assert trials[2].scores == {20: 8.0} and ended == [0, 1, 2]


def test_a_signal_is_passed_on_and_the_trial_is_resumed(sweep):
    def interrupt(trial):
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    trials, ended, received = sweep(PAUSE, 3, interrupt)
    assert (received, ended) == (signal.SIGINT, [])
    assert signal.getsignal(signal.SIGINT) is handler
    assert [trial.state for trial in trials] == ["running"]
    resumed, ended, _ = sweep("evaluate(20, 1.0)", 1)
    assert ended == [0] and resumed[0].state == "complete"
    assert resumed[0].hparams == trials[0].hparams


def test_each_process_has_its_gpu_and_its_share_of_the_cores(
    sweep, tmp_path, monkeypatch
):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(trials_of_sweeps, "num_cores", lambda: 9)
    monkeypatch.setattr(trials_of_sweeps, "visible_gpus", lambda: ["GPU-a", "GPU-b"])
    program = """
names = ("TF_NUM_INTRAOP_THREADS", "CUDA_VISIBLE_DEVICES")
print(*map(os.environ.get, names), flush=True)
others = [run.parent / f"trial-000{n}" / "process.log" for n in range(3)]
while not all(other.exists() and other.read_text() for other in others):
    time.sleep(0.01)
evaluate(20, 1.0)
"""
    sweep(program, 3, workers=3)
    logs = [tmp_path / f"trial-000{n}" / "process.log" for n in range(3)]
    texts = [log.read_text() for log in logs]
    assert texts == ["3 GPU-a\n", "3 GPU-b\n", "3 GPU-a\n"]


PARENT = """
import pathlib, sys
from helpers.sweeps import sweep_settings
from t2t_keras.plugins.sweep import trial
from t2t_keras.plugins.sweep.study import SweepStudy
program = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
trial._TRAIN = ("-c", program)
study = SweepStudy.open(pathlib.Path(sys.argv[1]), sweep_settings())
trial.TrialRunner(study, 1, print, print).run(1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends such processes")
def test_a_training_ends_with_its_sweep_and_is_resumed(sweep, tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
    )
    log = tmp_path / "trial-0000" / "process.log"
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"), parent)
    training = psutil.Process(int(log.read_text()))
    parent.kill()
    parent.wait()
    training.wait(10)
    trials, ended, _ = sweep("evaluate(20, 1.0)", 1)
    assert ended == [0] and trials[0].state == "complete"
