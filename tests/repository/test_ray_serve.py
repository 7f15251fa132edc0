"""The example of Ray Serve: two replicas, updates and losses while clients ask."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from helpers.ray_cluster import ray_cluster
from helpers.translation_clients import (
    CLIENTS,
    asking,
    assert_right,
    export_versions,
    free_port,
)
from helpers.waiting import wait_until

from t2t_keras.plugins.server.requests import Limits

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_serve"


class Application:
    """The application of the example's `config.yaml`, on a Ray cluster.

    Args:
        folder: where its configuration is written.
        dashboard_port: the port of the cluster's dashboard.
    """

    def __init__(self, folder: Path, dashboard_port: int) -> None:
        self._path = folder / "config.yaml"
        self._dashboard = f"http://127.0.0.1:{dashboard_port}"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def deploy(self, folder: Path, version: int) -> None:
        """Runs `serve deploy` with one proxy, since all nodes have the same address."""
        config = yaml.safe_load((EXAMPLE / "config.yaml").read_text("utf-8"))
        config["proxy_location"] = "HeadOnly"
        config["http_options"] |= {"host": "127.0.0.1", "port": self.port}
        (application,) = config["applications"]
        application["args"] = {"folder": str(folder), "version": version}
        self._path.write_text(yaml.safe_dump(config), "utf-8")
        command = [Path(sys.executable).parent / "serve", "deploy", self._path]
        subprocess.run([*command, "--address", self._dashboard], check=True)

    def status(self) -> dict[str, Any]:
        """Returns what Ray Serve knows about the application."""
        answer = httpx.get(f"{self._dashboard}/api/serve/applications/", timeout=60)
        return answer.json()["applications"]["translation"]

    def replicas(self) -> dict[int, str]:
        """Returns the state of each replica by its process; pending ones have none."""
        deployment = self.status()["deployments"].get("TranslationServer", {})
        replicas = deployment.get("replicas", ())
        return {x["pid"]: x["state"] for x in replicas if "pid" in x}

    def wait_without(self, *lost: int) -> None:
        """Waits until the application has two replicas, and none of these processes."""

        def is_complete() -> bool:
            status = self.status()
            assert status["status"] != "DEPLOY_FAILED", status
            replicas = self.replicas()
            is_running = [*replicas.values()] == ["RUNNING"] * 2
            return (
                is_running
                and status["status"] == "RUNNING"
                and not set(lost) & {*replicas}
            )

        wait_until(is_complete)


def test_requests_end_before_their_replica_and_their_proxy_give_up():
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text("utf-8"))
    (application,) = config["applications"]
    (deployment,) = application["deployments"]
    module, _, function = application["import_path"].partition(":")
    assert f"def {function}(" in (EXAMPLE / f"{module}.py").read_text("utf-8")
    seconds = config["http_options"]["request_timeout_s"]
    assert deployment["graceful_shutdown_timeout_s"] > seconds
    assert seconds > Limits().timeout_seconds


@pytest.fixture(scope="module")
def versions(translator, tmp_path_factory):
    """The folder of two versions of a model, and the translations of each."""
    pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
    folder = tmp_path_factory.mktemp("served") / "ende"
    return folder, export_versions(translator, folder)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The application of the example's folder, and three nodes of one core each."""
    if not (importlib.util.find_spec("ray") and importlib.util.find_spec("aiohttp")):
        pytest.skip("needs Ray Serve: pip install 'ray[serve]'")
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(EXAMPLE))
        with ray_cluster(1, 1, 1, dashboard_port=port) as cluster:
            yield cluster, Application(tmp_path_factory.mktemp("application"), port)


@pytest.fixture
def application(cluster, versions):
    """The application with two replicas of the first version."""
    _, application = cluster
    folder, _ = versions
    application.deploy(folder, 1)
    application.wait_without()
    return application


@pytest.mark.slow
def test_an_update_loses_no_answer_and_makes_none_wrong(application, versions):
    folder, expected = versions
    previous = application.replicas()
    with asking(application.port) as answers:
        wait_until(lambda: len(answers) > 200)
        application.deploy(folder, 2)
        old_count = len(answers)
        application.wait_without(*previous)
        mixed_count = len(answers) + CLIENTS
        wait_until(lambda: len(answers) > mixed_count + 200)
    assert_right(answers[:old_count], expected[0])
    assert_right(answers, *expected)
    assert_right(answers[mixed_count:], expected[1])


@pytest.mark.slow
def test_a_replica_answers_as_t2t_serve_does(application):
    with httpx.Client(base_url=application.url, timeout=60) as client:
        assert client.get("/health").json() == {"status": "ok"}
        status = client.get("/v1/models/ende").json()["model_version_status"]
        assert [(x["version"], x["state"]) for x in status] == [("1", "AVAILABLE")]
        answer = client.post("/v1/models/ende:predict", json={"instances": []})
        assert (answer.status_code, [*answer.json()]) == (400, ["error"])
        assert "<html" in client.get("/").text


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["replica", "node"])
def test_a_lost_replica_answers_500_and_is_replaced(
    cluster, application, versions, loss
):
    nodes, _ = cluster
    _, expected = versions
    with asking(application.port) as answers:
        wait_until(lambda: len(answers) > 200)
        pid = next(iter(application.replicas()))
        if loss == "replica":
            os.kill(pid, signal.SIGKILL)
        else:
            nodes.remove_node(node_of(nodes, pid), allow_graceful=False)
        application.wait_without(pid)
        count = len(answers)
        wait_until(lambda: len(answers) > count + 200)
    lost = [answer for answer in answers if answer.status != 200]
    assert len(lost) <= CLIENTS  # those that the replica had
    assert {answer.status for answer in lost} <= {500}
    assert_right([answer for answer in answers if answer not in lost], expected[0])
    if loss == "node":
        nodes.add_node(num_cpus=1)


def node_of(cluster, pid):
    """Returns the node that has a process."""
    for node in cluster.worker_nodes:
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        if pid in [child.pid for child in raylet.children(recursive=True)]:
            return node
    raise AssertionError(pid)


@pytest.mark.slow
def test_a_damaged_version_replaces_nothing(application, versions, tmp_path):
    folder, expected = versions
    damaged = tmp_path / "ende" / "2"
    shutil.copytree(folder / "2", damaged)
    (damaged / "model.bin").write_bytes(b"damaged")
    previous = application.replicas()
    with asking(application.port, clients=2) as answers:
        application.deploy(damaged.parent, 2)
        wait_until(lambda: application.status()["status"] == "DEPLOY_FAILED")
    assert_right(answers, expected[0])
    sentence = "is damaged: model.bin is missing or does not have its checksum"
    assert sentence in str(application.status())
    for pid in previous:
        os.kill(pid, 0)  # it runs
