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
from small_data import small_data

from t2t_keras.training.checkpoint import Checkpoint, CheckpointDirectory

STEPS = 150
COMMAND = [sys.executable, "-c", "from t2t_keras.cli import main; main()", "train"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    small_data(directory)
    return directory


def start(data_dir, output_dir, replicas: int) -> subprocess.Popen:
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
    }
    arguments = [str(part) for k, v in flags.items() for part in (f"--{k}", v)]
    return subprocess.Popen(
        [*COMMAND, *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
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


@pytest.mark.parametrize("replicas", [1, 2])
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
    ends = [
        Checkpoint(tmp_path / name / f"model.ckpt-{STEPS}")
        for name in ("whole", "killed")
    ]
    assert ends[0].shapes == ends[1].shapes
    for name in ends[0].shapes:
        np.testing.assert_array_equal(*(end.tensor(name) for end in ends), err_msg=name)
