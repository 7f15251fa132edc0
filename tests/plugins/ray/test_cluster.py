"""Clusters and nodes that are refused; what needs no cluster."""

import hashlib
import re
import socket
from contextlib import nullcontext

import pytest
from helpers.command_line import run_refused, write
from helpers.errors import refused

from t2t_keras.plugins.ray import cluster, nodes
from t2t_keras.plugins.ray.cluster import capacity
from t2t_keras.plugins.ray.flags import WorkerSize
from t2t_keras.plugins.ray.nodes import Report, _probe, difference, own_versions


def test_room_is_counted_node_by_node():
    nodes = [{"CPU": 7.0, "GPU": 2.0}, {"CPU": 4.0}, {"CPU": 3.0, "GPU": 8.0}]
    assert capacity(nodes, WorkerSize(cores=1)) == 14
    assert capacity(nodes, WorkerSize(cores=4)) == 2
    assert capacity(nodes, WorkerSize(cores=2, gpus=1)) == 3
    assert capacity(nodes, WorkerSize(cores=4, gpus=4)) == 0


def test_a_node_must_have_the_same_versions_and_folders(tmp_path):
    token, model = (write(tmp_path / name, name) for name in ("token", "model"))
    digest = hashlib.sha256(b"model\n").hexdigest()
    expected = Report(
        own_versions(), {str(token): "token\n"}, {str(model): f"{digest} 6"}
    )
    report = Report(*_probe()([str(token)], [str(model)], 16))
    assert report == expected and difference("n", expected, report) is None
    for changes, sentence in (
        (
            {"versions": own_versions() | {"Python": "3.10"}},
            "node n has Python 3.10, and this machine",
        ),
        (
            {"versions": own_versions() | {"t2t_keras": "0.0.1"}},
            "node n has t2t_keras 0.0.1, and this machine",
        ),
        (
            {"versions": own_versions() | {"t2t_keras": None}},
            "node n has no t2t_keras; install version",
        ),
        ({"tokens": {}}, f"node n does not share the folder {tmp_path}; name one"),
        (
            {"fingerprints": {str(model): f"{digest} 5"}},
            f"node n does not have {model} as this machine",
        ),
    ):
        assert difference("n", expected, report._replace(**changes)).startswith(
            sentence
        )


def test_ray_of_another_version_is_one_sentence():
    error = RuntimeError(
        "Version mismatch: The cluster was started with:\n    Ray: 2.50.0\n    Python: "
        "3.12.1\nThis process on node 10.0.0.1 was started with:\n    Ray: 2.60.0\n    "
        "Python: 3.11.7\n"
    )
    sentence = cluster._refusal("auto", error)
    assert sentence == (
        "--cluster auto has Ray 2.50.0, Python 3.12.1, and this machine Ray 2.60.0, "
        "Python 3.11.7; install the same versions"
    )


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("[::1:6379", "is not an address; give HOST:PORT"),
        ("nonsense", "--cluster nonsense is not an address; give HOST:PORT"),
        ("ray://host:1", "--cluster ray://host:1 is not an address; give HOST:PORT"),
        (None, "there is no cluster (Connection refused); `ray start --head`"),
    ],
)
def test_an_address_without_a_cluster_is_refused(address, sentence, monkeypatch):
    monkeypatch.setattr(cluster, "require_extra", lambda *args: None)
    if address is None:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{server.getsockname()[1]}"
    refused(re.escape(sentence), cluster.connected(address).__enter__)


def test_flags_that_have_no_effect_on_a_cluster(tmp_path, capfd, export_dir):
    pytest.importorskip("ray", reason="needs the extra [ray]")
    path = write(tmp_path / "text", "a")
    command = ["translate", export_dir, path, "--cluster", "auto"]
    assert "--cluster needs --output" in run_refused(capfd, *command)
    command += ["--output", tmp_path / "out"]
    assert "--resume has no effect" in run_refused(capfd, *command, "--resume")
    command = ["translate", export_dir, path, "--cluster", "auto", "--output", path]
    assert "is a file; with --cluster the output is a" in run_refused(capfd, *command)


def test_other_versions_are_refused_before_a_run_is_converted(
    tmp_path, monkeypatch, capfd, trained_run
):
    pytest.importorskip("ray", reason="needs the extra [ray]")
    report = Report({"Python": "3.10", "t2t_keras": "0.0.1"}, {}, {})
    monkeypatch.setattr(nodes, "_ask", lambda tokens, paths: [("n", report)])
    monkeypatch.setattr(cluster, "connected", lambda address: nullcontext())
    monkeypatch.setattr(cluster, "require_capacity", lambda size, workers: 1)
    path = write(tmp_path / "text", "a")
    command = ["translate", trained_run, path, "--output", tmp_path / "out"]
    command += ["--cluster", "auto", "--engine", "auto"]
    assert "node n has Python 3.10" in run_refused(capfd, *command)
    assert not list(trained_run.rglob("*ctranslate2*"))
