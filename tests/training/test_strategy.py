"""Several processes train as one: their batches, the writer, and dead processes."""

import json
import os
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from helpers.errors import refused
from helpers.training_process import assert_same_end, finish, kill_at, start

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.problem import SIDES
from t2t_keras.run.checkpoint import CheckpointDirectory
from t2t_keras.training.strategy import ProcessGroup, make_strategy


@pytest.mark.parametrize(("batch_tokens", "micro_batches"), [(60, 3), (300, 1)])
def test_processes_read_their_own_rows_of_the_same_batches(
    data_dir, batch_tokens, micro_batches, monkeypatch
):
    """With 60 tokens a batch, some replicas have padding only."""
    index = RecordIndex.open(data_dir, "translate_text", "train")
    plan = BatchPlan(index.source_length, index.target_length, batch_tokens, seed=3)
    options = {"num_replicas": 8, "micro_batches": micro_batches}
    all_batches = list(training_batches(index, plan, range(5), **options))
    processes = []
    was_read = []
    read = RecordIndex.read
    watched = lambda self, rows: was_read.extend(rows) or read(self, rows)  # noqa: E731
    monkeypatch.setattr(RecordIndex, "read", watched)
    for local_rows in (range(0, 2), range(2, 6), range(6, 8)):
        batches = training_batches(
            index, plan, range(5), local_replicas=local_rows, **options
        )
        processes.append((len(local_rows), iter(list(batches))))
    joined = [
        next(elements)
        for _ in range(5)
        for replicas, elements in processes
        for _ in range(replicas)
    ]
    for element, expected in zip(joined, all_batches, strict=True):
        assert len(expected["source"]) % micro_batches == 0
        for side in SIDES:
            np.testing.assert_array_equal(element[side], expected[side])
    planned = np.concatenate([plan.records(step) for step in range(5)])
    assert sorted(was_read) == sorted(planned)


def tf_config(ports, index: int, task_type: str = "worker") -> str:
    workers = [f"localhost:{port}" for port in ports]
    return json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": task_type, "index": index}}
    )


def test_tf_config_says_which_process_this_is(monkeypatch):
    def cluster(config: str) -> tuple[int, int, bool]:
        monkeypatch.setenv("TF_CONFIG", config)
        group = ProcessGroup.from_environment()
        return group.size, group.index, group.is_chief

    assert cluster("") == (1, 0, True)
    assert cluster("{}") == (1, 0, True)
    assert cluster(tf_config([1, 2, 3], 0)) == (3, 0, True)
    assert cluster(tf_config([1, 2, 3], 2)) == (3, 2, False)
    with_chief = json.loads(tf_config([1, 2], 1))
    with_chief["cluster"]["chief"] = ["localhost:0"]
    assert cluster(json.dumps(with_chief)) == (3, 2, False)
    with_chief["task"] = {"type": "chief", "index": 0}
    assert cluster(json.dumps(with_chief)) == (3, 0, True)


@pytest.mark.parametrize(
    "config",
    [
        *("host0:1", "[1]", tf_config([1, 2], 2), tf_config([1, 2], 0, task_type="ps")),
        tf_config(["none", 2], 0),
        tf_config([1, 2], 0).replace("localhost", "[::1"),
    ],
)
def test_a_wrong_tf_config_is_explained(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    refused("TF_CONFIG must name the workers", make_strategy)


def test_simulated_devices_are_for_one_process(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config([1, 2], 0))
    message = "--simulate_devices 2 is for one process"
    refused(message, make_strategy, simulate_devices=2)


def free_ports() -> list[int]:
    """Returns two ports on which nobody listens."""
    with socket.socket() as first_socket, socket.socket() as second_socket:
        for free in (first_socket, second_socket):
            free.bind(("localhost", 0))
        return [free.getsockname()[1] for free in (first_socket, second_socket)]


def test_a_process_that_does_not_come_is_named(monkeypatch):
    ports = free_ports()
    monkeypatch.setattr("t2t_keras.training.strategy._MINUTES_TO_CONNECT", 0.01)
    monkeypatch.setenv("TF_CONFIG", tf_config(ports, 0))
    missing = rf"^process 1 of 2 in TF_CONFIG, localhost:{ports[1]}, could not be"
    refused(missing, make_strategy)
    taken = f"cannot open its port in TF_CONFIG, localhost:{ports[0]}: Address already"
    with socket.create_server(("", ports[0])):
        refused(taken, make_strategy)


def start_both(data_dir, output_dir, **flags) -> list[subprocess.Popen]:
    """Starts two processes of one replica each, as on two machines."""
    ports = free_ports()
    # The level is the program's own; the tests have another one.
    environments = [
        {"TF_CONFIG": tf_config(ports, index), "TF_CPP_MIN_LOG_LEVEL": "3"}
        for index in (0, 1)
    ]
    return [start(data_dir, output_dir, 0, env=env, **flags) for env in environments]


def read_metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").open()]


@pytest.mark.slow
def test_two_processes_are_one_with_two_replicas(data_dir, tmp_path):
    """Bit for bit, step after step."""
    often = {"train_steps": 5, "save_every": 1, "log_every": 1}
    chief, worker = start_both(data_dir, tmp_path / "together", **often)
    finish(chief)
    worker.communicate(timeout=60)
    finish(start(data_dir, tmp_path / "alone", 2, **often))
    runs = [tmp_path / name for name in ("together", "alone")]
    for step in (1, 5):
        assert_same_end(*runs, step=step)
    for records in zip(*map(read_metrics, runs), strict=True):
        for name in ("step", "kind", "nll"):
            assert records[0][name] == records[1][name]
    for run in runs:  # the chief alone has written them
        assert len((run / "history.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_process_ends_all_and_a_restart_resumes(data_dir, tmp_path, victim):
    """It ends as if it had never stopped, bit for bit."""
    processes = start_both(data_dir, tmp_path / "killed", train_steps=100_000)
    checkpoints = CheckpointDirectory(tmp_path / "killed")
    kill_at(processes[victim], checkpoints, 20)
    _, errors = processes[1 - victim].communicate(timeout=120)
    assert processes[1 - victim].returncode == 2
    sentence = f"t2t train: error: process {1 - victim} of 2 has lost"
    assert errors.splitlines()[-1].startswith(sentence)
    assert "Traceback" not in errors
    if victim == 0:  # the other one has nothing else to say
        assert errors.count("\n") == 1

    steps = checkpoints.steps()[-1] + 15
    for name in ("killed", "whole"):
        processes = start_both(data_dir, tmp_path / name, train_steps=steps)
        finish(processes[0])
        output, errors = processes[1].communicate(timeout=60)
        assert (processes[1].returncode, output, errors) == (0, "", "")
    assert_same_end(tmp_path / "killed", tmp_path / "whole", step=steps)


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_at_the_same_step(data_dir, tmp_path):
    processes = start_both(data_dir, tmp_path, train_steps=100_000)
    checkpoints = CheckpointDirectory(tmp_path)
    while not checkpoints.steps():
        time.sleep(0.01)
        assert processes[0].poll() is None, processes[0].stderr.read()
    os.kill(processes[1].pid, signal.SIGTERM)
    _, errors = processes[0].communicate(timeout=60)
    processes[1].communicate(timeout=60)
    assert [process.returncode for process in processes] == [128 + signal.SIGTERM] * 2
    assert f"SIGTERM: saved step {checkpoints.steps()[-1]}" in errors
