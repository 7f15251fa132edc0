"""`t2t launch --cluster`: a process on each node, restarts, and the same weights."""

import contextlib
import os
import signal

import psutil
import pytest
from helpers.command_line import run_refused
from helpers.errors import refused
from helpers.ray_cluster import ray_cluster
from helpers.training_process import assert_same_end, finish, start
from helpers.waiting import wait_until

from t2t_keras.plugins.ray import launch
from t2t_keras.plugins.ray.launch import State, process_environment, shared_variables
from t2t_keras.run.checkpoint import CheckpointDirectory
from t2t_keras.run.directory import training_lock

TIMEOUT = 200


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train"], "--cluster needs --workers N, the number of processes"),
        (["--workers", "2", "evaluate"], "only `train` runs in several processes; wri"),
        (["--workers", "2", "--processes", "2", "train"], "--processes is for this ma"),
        (["--workers", "2", "train"], "give --problem, --hparams_set, --data_dir and"),
        (["--workers", "2", "train", "--output_dir", "absent"], "--problem is missing"),
    ],
)
def test_flags_that_do_not_fit(capfd, words, sentence):
    pytest.importorskip("ray", reason="needs the extra [ray]")
    assert sentence in run_refused(capfd, "launch", "--cluster", "auto", *words)


def test_a_restart_awaits_the_end_of_an_earlier_process(monkeypatch, tmp_path):
    launch._await_earlier_training(tmp_path)  # there is none
    training = contextlib.ExitStack()
    training.enter_context(training_lock(tmp_path))
    monkeypatch.setattr(launch.time, "sleep", lambda seconds: training.close())
    launch._await_earlier_training(tmp_path)

    monkeypatch.setattr(launch, "_SECONDS_TO_RESTART", 0.0)
    message = (
        rf"still writes to .*, process {os.getpid()} on .*; end it, and run the sam"
    )
    with training_lock(tmp_path):
        refused(message, launch._await_earlier_training, tmp_path)


@pytest.mark.parametrize("line_end", ["\n", "\r"])
def test_only_the_last_lines_of_a_process_are_kept(monkeypatch, line_end):
    printed = [f"line {i}{line_end}" for i in range(20_000)]
    states = []
    for i in range(0, 20_000, 500):
        states.append(State(None, b"", "".join(printed[i : i + 500]).encode()))
    monkeypatch.setattr(
        launch._RemoteProcess,
        "_call",
        lambda self, method, *_: states.pop(0) if method == "poll" else None,
    )
    process = launch._RemoteProcess(None, False, [], {})
    while states:
        process.poll()
    shown = process.errors().removeprefix("... (earlier lines are left out)\n")
    assert "".join(printed).endswith(shown) and 60_000 < len(shown) < 1 << 16
    assert shown.startswith("line ") or line_end == "\r"


def test_variables_of_the_user_but_not_of_this_machine():
    shared = {
        **{"TF_DETERMINISTIC_OPS": "1", "XLA_FLAGS": "--x", "KERAS_BACKEND": "jax"},
        **{"T2T_A": "a", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "3"},
    }
    local = {"HOME": "/h", "PATH": "/p", "CUDA_VISIBLE_DEVICES": "0", "TF_CONFIG": "{}"}
    assert shared_variables(shared | local) == shared


def test_what_ray_and_its_start_have_set_is_left_out(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    environment = process_environment({"T2T_A": "a"})
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["T2T_A"]) == ("2", "a")
    assert not environment.keys() & {"OMP_NUM_THREADS", "TF_CONFIG"}
    variables = {"OMP_NUM_THREADS": "3", "TF_CONFIG": "{1}"}
    assert process_environment(variables).items() >= variables.items()


@pytest.fixture
def cluster():
    """A head and two workers of one core each."""
    pytest.importorskip("ray", reason="needs the extra [ray]")
    with ray_cluster(1, 1) as cluster:
        yield cluster


def start_two(cluster, data_dir, output_dir, *flags, **train_flags):
    launch = ("launch", "--cluster", cluster.address, "--workers", "2", *flags)
    env = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    return start(data_dir, output_dir, 0, env, launch, **train_flags)


def trainings(cluster):
    """Returns the processes of a training by the node that has them."""
    processes = {}
    for node in cluster.worker_nodes:
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for child in raylet.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "train" in child.cmdline():
                    processes[node] = child
    return processes


def begun(output_dir, step):
    checkpoints = CheckpointDirectory(output_dir)
    return lambda: max(checkpoints.steps(), default=0) >= step


@pytest.mark.slow
def test_a_lost_process_and_a_lost_node_change_no_weights(cluster, data_dir, tmp_path):
    run = tmp_path / "run"
    process = start_two(cluster, data_dir, run, train_steps=150)
    wait_until(begun(run, 20), process)
    assert len(trainings(cluster)) == 2  # one on each node
    next(iter(trainings(cluster).values())).kill()
    wait_until(begun(run, CheckpointDirectory(run).steps()[-1] + 20), process)
    node = next(iter(trainings(cluster)))
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(num_cpus=1)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert '"step": 150' in output.splitlines()[-1]
    assert "was killed by SIGKILL; restart 1 of 3, from the last checkpoint" in errors
    assert "restart 2 of 3" in errors and "restart 3" not in errors
    undisturbed = start(
        data_dir, tmp_path / "undisturbed", 0, launch=("launch", "--processes", "2")
    )
    finish(undisturbed)
    assert_same_end(run, tmp_path / "undisturbed", step=150)


@pytest.mark.slow
def test_the_restarts_are_counted_and_a_signal_saves(cluster, data_dir, tmp_path):
    run = tmp_path / "run"
    flags = ("--max_restarts", "0")
    process = start_two(cluster, data_dir, run, *flags, train_steps=100_000)
    wait_until(begun(run, 10), process)
    next(iter(trainings(cluster).values())).kill()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2
    assert errors.splitlines()[-1].endswith("resumes from the last checkpoint")

    process = start_two(cluster, data_dir, run, train_steps=100_000)
    step = CheckpointDirectory(run).steps()[-1]
    wait_until(begun(run, step + 10), process)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 143, errors
    saved = CheckpointDirectory(run).steps()[-1]
    assert f"t2t train: SIGTERM: saved step {saved}; the same command" in errors
    assert not trainings(cluster)

    process = start_two(cluster, data_dir, run, train_steps=saved, hparams_set="no")
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2 and "restart" not in errors
    assert "'no'" in errors.splitlines()[-1]
