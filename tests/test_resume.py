"""A run killed at any moment ends as if it had never stopped, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from t2t_keras.training.checkpoint import Checkpoint, CheckpointDirectory

STEPS = 150
MAIN = "import sys; from t2t_keras.cli import main; sys.exit(main())"
COMMAND = [sys.executable, "-c", MAIN, "train"]


def start(data_dir, output_dir, replicas: int, env=None, **flags) -> subprocess.Popen:
    """Starts training; `env` adds to the environment, `flags` to the flags."""
    flags = {
        "problem": "translate_text",
        "hparams_set": "tiny",
        "hparams": "num_layers=1,d_model=16,d_ff=32,num_heads=2,dropout=0.3,"
        "batch_tokens=256,warmup_steps=20",
        "data_dir": data_dir,
        "output_dir": output_dir,
        "train_steps": STEPS,
        "save_every": 10,
        "eval_every": 70,
        "eval_sentences": 0,
        "simulate_devices": replicas,
        "seed": 7,
        **flags,
    }
    arguments = [str(part) for k, v in flags.items() for part in (f"--{k}", v)]
    return subprocess.Popen(
        [*COMMAND, *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (env or {}),
    )


def finish(process: subprocess.Popen) -> dict:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def kill_at(process: subprocess.Popen, directory: CheckpointDirectory, step: int):
    """Kills the process somewhere after it has written the step's checkpoint."""
    while process.poll() is None and max(directory.steps(), default=0) < step:
        time.sleep(0.005)
    assert process.poll() is None, process.stderr.read()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def assert_same_end(*output_dirs, step: int = STEPS):
    """Two runs have the same last checkpoint, bit for bit."""
    ends = [Checkpoint(path / f"model.ckpt-{step}") for path in output_dirs]
    assert ends[0].shapes == ends[1].shapes
    for name in ends[0].shapes:
        np.testing.assert_array_equal(*(end.tensor(name) for end in ends), err_msg=name)


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_and_started_again_equals_never_stopped(data_dir, tmp_path, replicas):
    never_stopped = start(data_dir, tmp_path / "whole", replicas)
    killed = start(data_dir, tmp_path / "killed", replicas)
    checkpoints = CheckpointDirectory(tmp_path / "killed")
    kill_at(killed, checkpoints, random.randrange(10, STEPS - 30))
    assert 0 < checkpoints.steps()[-1] < STEPS
    resumed = finish(start(data_dir, tmp_path / "killed", replicas))
    whole = finish(never_stopped)

    assert resumed["step"] == whole["step"] == STEPS
    assert resumed["dev_loss"] == whole["dev_loss"]
    assert_same_end(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_one_command_gives_one_result(data_dir, tmp_path, replicas):
    """In processes of their own, which compete for the processors."""
    few = {"seed": 3, "train_steps": 30}
    paths = [tmp_path / name for name in "ab"]
    for process in [start(data_dir, path, replicas, **few) for path in paths]:
        finish(process)
    assert_same_end(*paths, step=30)


@pytest.mark.slow
def test_terminated_it_saves_and_goes_on_as_if_never_stopped(data_dir, tmp_path):
    rarely = {"save_every": 10_000}
    terminated = start(data_dir, tmp_path / "a", 1, **rarely)
    metrics = tmp_path / "a" / "metrics.jsonl"  # written when training begins
    while terminated.poll() is None and not metrics.exists():
        time.sleep(0.01)
    for line in terminated.stderr:  # the first evaluation: it is under way
        if "| loss" in line:
            break
    terminated.send_signal(signal.SIGTERM)
    terminated.stderr.read()
    assert terminated.wait() == 143
    (step,) = CheckpointDirectory(tmp_path / "a").steps()
    assert 70 <= step < STEPS
    finish(start(data_dir, tmp_path / "a", 1, **rarely))
    finish(start(data_dir, tmp_path / "b", 1, **rarely))
    assert_same_end(tmp_path / "a", tmp_path / "b")
