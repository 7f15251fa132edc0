"""Whether a training that is killed and resumed ends like an uninterrupted one.

Trains on the toy problem by `t2t train`, as it runs on this machine by default.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from t2t_keras.processes import T2T
from t2t_keras.run.checkpoint import Checkpoint

STEPS = 120
_SAVE_EVERY = 20
_KILLED_AFTER = 40  # steps


def compare_ends(folder: Path) -> dict[str, int]:
    """Trains twice, killing one of both, and compares their last checkpoints.

    Returns:
        "arrays", how many a checkpoint has, and "different_arrays", how many of them
        have other bits after the kill.
    """
    data = ("--problem", "translate_ende_toy", "--data_dir", str(folder / "data"))
    t2t = (sys.executable, *T2T)
    subprocess.run([*t2t, "datagen", *data], check=True, stdout=sys.stderr)
    train = (*t2t, "train", *data, "--hparams_set", "tiny")
    train += ("--train_steps", str(STEPS))
    train += ("--save_every", str(_SAVE_EVERY), "--eval_sentences", "0", "--seed", "1")
    runs = [folder / "uninterrupted", folder / "killed"]
    commands = [[*train, "--output_dir", str(run)] for run in runs]
    _kill(commands[1], runs[1] / f"model.ckpt-{_KILLED_AFTER}.index")
    for command in commands:
        subprocess.run(command, check=True, stdout=sys.stderr)
    uninterrupted, killed = (Checkpoint(run / f"model.ckpt-{STEPS}") for run in runs)
    different = [
        name
        for name in uninterrupted.shapes
        if not np.array_equal(uninterrupted.tensor(name), killed.tensor(name))
    ]
    return {"arrays": len(uninterrupted.shapes), "different_arrays": len(different)}


def _kill(command: list[str], checkpoint: Path) -> None:
    """Starts a training and kills it some steps after it has written a checkpoint.

    Raises:
        RuntimeError: it ended before.
    """
    process = subprocess.Popen(command, stdout=sys.stderr)
    while not checkpoint.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the training ended with {process.returncode}")
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if checkpoint.with_name(f"model.ckpt-{STEPS}.index").exists():
        raise RuntimeError("the training was over before it was killed")
