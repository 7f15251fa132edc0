"""A training in another process, to be killed and compared."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
from helpers.waiting import wait_until

from t2t_keras.run.checkpoint import Checkpoint, CheckpointDirectory

STEPS = 150
MAIN = "import sys; from t2t_keras.cli import main; sys.exit(main())"


def start(data_dir, output_dir, replicas, env=None, launch=(), **flags):
    """Starts training; `env` adds to the environment, `flags` to the flags."""
    flags = {
        **{"problem": "translate_text", "hparams_set": "tiny"},
        "hparams": "num_layers=1,d_model=16,d_ff=32,num_heads=2,dropout=0.3,"
        "batch_tokens=256,warmup_steps=20",
        **{"data_dir": data_dir, "output_dir": output_dir, "train_steps": STEPS},
        **{"save_every": 10, "eval_every": 70, "eval_sentences": 0},
        **{"simulate_devices": replicas, "seed": 7},
        **flags,
    }
    arguments = [str(part) for k, v in flags.items() for part in (f"--{k}", v)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", MAIN, *launch, "train", *arguments, "--json"]
    return subprocess.Popen(command, env=os.environ | (env or {}), **pipes)


def finish(process: subprocess.Popen) -> dict:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def kill_at(process: subprocess.Popen, directory: CheckpointDirectory, step: int):
    """Kills the process somewhere after it has written the step's checkpoint."""
    wait_until(lambda: max(directory.steps(), default=0) >= step, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def assert_same_end(*output_dirs, step: int = STEPS):
    """Two runs have the same last checkpoint, bit for bit."""
    checkpoints = [Checkpoint(path / f"model.ckpt-{step}") for path in output_dirs]
    assert checkpoints[0].shapes == checkpoints[1].shapes
    for name in checkpoints[0].shapes:
        np.testing.assert_array_equal(
            *(checkpoint.tensor(name) for checkpoint in checkpoints), err_msg=name
        )
