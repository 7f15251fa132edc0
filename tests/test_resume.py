"""A run killed at any moment ends as if it had never stopped, bit for bit."""

import random
import signal
import time

import pytest
from training_process import STEPS, assert_same_end, finish, kill_at, start

from t2t_keras.training.checkpoint import CheckpointDirectory


@pytest.mark.slow
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
        if "dev | nll" in line:
            break
    terminated.send_signal(signal.SIGTERM)
    terminated.stderr.read()
    assert terminated.wait() == 143
    (step,) = CheckpointDirectory(tmp_path / "a").steps()
    assert 70 <= step < STEPS
    finish(start(data_dir, tmp_path / "a", 1, **rarely))
    finish(start(data_dir, tmp_path / "b", 1, **rarely))
    assert_same_end(tmp_path / "a", tmp_path / "b")
