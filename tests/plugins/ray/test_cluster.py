"""Clusters and nodes that are refused; what needs no cluster."""

import importlib.metadata
import re
import socket
from contextlib import nullcontext

import pytest
from helpers.command_line import run_refused, write
from helpers.errors import refused

from t2t_keras.plugins.ray import bulk, cluster, generating
from t2t_keras.plugins.ray.cluster import (
    Report,
    WorkerSize,
    _probe,
    capacity,
    difference,
)


def test_room_is_counted_node_by_node():
    cluster = [{"CPU": 7.0, "GPU": 2.0}, {"CPU": 4.0}, {"CPU": 3.0, "GPU": 8.0}]
    assert capacity(cluster, WorkerSize(cores=1)) == 14
    assert capacity(cluster, WorkerSize(cores=4)) == 2
    assert capacity(cluster, WorkerSize(cores=2, gpus=1)) == 3
    assert capacity(cluster, WorkerSize(cores=4, gpus=4)) == 0


def test_a_node_must_have_the_same_versions_and_folders(tmp_path):
    token, model = (str(write(tmp_path / name, name)) for name in ("token", "model"))
    expected = Report(*_probe()([token, model, str(tmp_path / "absent")]))
    assert expected.sizes == {token: 6, model: 6}
    assert expected.versions["t2t_keras"] == importlib.metadata.version("t2t_keras")
    assert difference("n", expected, expected, [token]) is None
    for changes, sentence in (
        (
            {"versions": expected.versions | {"Python": "3.10"}},
            "node n has Python 3.10, and this machine",
        ),
        (
            {"versions": expected.versions | {"t2t_keras": "0.0.1"}},
            "node n has t2t_keras 0.0.1, and this machine",
        ),
        (
            {"versions": expected.versions | {"t2t_keras": None}},
            "node n has no t2t_keras; install version",
        ),
        (
            {"sizes": {model: 6}},
            f"node n does not share the folder {tmp_path}; name one",
        ),
        (
            {"sizes": {token: 6, model: 5}},
            f"node n does not have {model} as this machine",
        ),
    ):
        report = expected._replace(**changes)
        assert difference("n", expected, report, [token]).startswith(sentence)


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


@pytest.mark.parametrize("address", ["[::1:6379", "nonsense", "ray://host:1", ""])
def test_what_is_not_an_address_is_refused(address, capfd):
    sentence = run_refused(capfd, "launch", f"--cluster={address}", "train")
    assert f"--cluster: '{address}' is not an address; give HOST:PORT, as" in sentence


def test_an_address_without_a_cluster_is_refused(monkeypatch):
    monkeypatch.setattr(cluster, "require_extra", lambda *args: None)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
    sentence = re.escape("there is no cluster (Connection refused); `ray start --head`")
    refused(sentence, cluster.connected(address).__enter__)


def test_flags_that_have_no_effect_on_a_cluster(tmp_path, capfd, export_dir):
    pytest.importorskip("ray", reason="needs the extra [ray]")
    path = write(tmp_path / "text", "a")
    command = ["translate", export_dir, path, "--cluster", "auto"]
    assert "--cluster needs --output" in run_refused(capfd, *command)
    command += ["--output", tmp_path / "out"]
    assert "--resume has no effect" in run_refused(capfd, *command, "--resume")
    command = ["translate", export_dir, path, "--cluster", "auto", "--output", path]
    assert "is a file; with --cluster the output is a" in run_refused(capfd, *command)


def add_node(monkeypatch, **changes):
    """Makes a cluster of one node, which reports something else than this machine."""
    pytest.importorskip("ray", reason="needs the extra [ray]")

    def ask(paths):
        return [("n", Report(*_probe()(paths))._replace(**changes))]

    monkeypatch.setattr(cluster, "_ask", ask)
    for module in (bulk, generating):
        monkeypatch.setattr(module, "connected", lambda address: nullcontext())
        monkeypatch.setattr(module, "require_capacity", lambda size, workers: 1)


def test_other_versions_are_refused_before_a_run_is_converted(
    tmp_path, monkeypatch, capfd, trained_run
):
    add_node(monkeypatch, versions={"Python": "3.10", "t2t_keras": "0.0.1"})
    path = write(tmp_path / "text", "a")
    command = ["translate", trained_run, path, "--output", tmp_path / "out"]
    command += ["--cluster", "auto", "--engine", "auto"]
    assert "node n has Python 3.10" in run_refused(capfd, *command)
    assert not list(trained_run.rglob("*ctranslate2*"))


def test_every_node_needs_the_model_and_the_sources(
    tmp_path, monkeypatch, capfd, export_dir
):
    add_node(monkeypatch, sizes={})
    path = write(tmp_path / "text", "a", "b", "c")
    command = ["translate", export_dir, path, "--output", tmp_path / "out"]
    sentence = run_refused(capfd, *command, "--cluster", "auto")
    assert f"node n does not have {export_dir}" in sentence
    command = ["datagen", "--problem", "translate_text", "--data_dir", tmp_path / "d"]
    command += ["--train_source", path, "--train_target", path]
    sentence = run_refused(capfd, *command, "--cluster", "auto")
    assert f"node n does not have {path} as this machine has it" in sentence
