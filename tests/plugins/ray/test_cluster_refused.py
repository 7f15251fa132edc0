"""Clusters that cannot do the work: one sentence each, within 30 seconds."""

import socket
import subprocess
import sys

import pytest
from helpers.command_line import run, run_refused, write
from helpers.ray_cluster import ray_cluster, start

pytest.importorskip("ray", reason="needs the extra [ray]")
pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
pytestmark = pytest.mark.slow

SECONDS = 40  # for 30, and the start of Python


@pytest.fixture(scope="module")
def export(trained_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "ct2"
    words = ["--format", "ctranslate2", "--verify", 0]
    assert run("export", trained_run, path, *words) == 0
    return path


@pytest.fixture
def command(export, tmp_path):
    text = write(tmp_path / "in.txt", "a b c")
    return ["translate", export, text, "--output", tmp_path / "out"]


def refused(process):
    """Returns the last line of a process that ends with exit code 2."""
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2, errors
    return errors.splitlines()[-1]


def test_what_listens_is_not_a_cluster(command):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        class Address:
            address = f"127.0.0.1:{server.getsockname()[1]}"

        sentence = refused(start(Address, *command))
    assert "no answer of a Ray cluster in 25 s; give the address" in sentence


def test_too_few_cores_and_gpus(command, tmp_path, capfd):
    with ray_cluster(2, 1) as cluster:
        for flags, needed in (
            (["--workers", 4], "room for 3 workers of 1 core (3 nodes, 3 cores, 0 GPU"),
            (["--cores_per_worker", 3], "room for 0 workers of 3 cores"),
            (["--gpus_per_worker", 1], "room for 0 workers of 1 GPU and 1 core"),
        ):
            words = [*command, "--cluster", cluster.address, *flags]
            assert needed in run_refused(capfd, *words)
        assert not (tmp_path / "out").exists()
        # Another program has all cores.
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, cluster.address], stdout=subprocess.PIPE
        )
        assert holder.stdout.readline()
        sentence = refused(start(cluster, *command))
        holder.kill()
        holder.communicate()
    assert "no worker of 1 core has started in 25 s; other programs use" in sentence


HOLD = """
import sys, time, ray
ray.init(sys.argv[1], log_to_driver=False, configure_logging=False)
@ray.remote(num_cpus=1)
class Holder:
    def hold(self): return 1
holders = [Holder.remote() for _ in range(3)]
ray.get([holder.hold.remote() for holder in holders])
print("all held", flush=True)
time.sleep(300)
"""


def test_a_node_with_another_version(command, tmp_path, monkeypatch):
    folder = tmp_path / "other" / "t2t_keras-0.0.1.dist-info"
    folder.mkdir(parents=True)
    write(
        folder / "METADATA",
        "Metadata-Version: 2.1",
        "Name: t2t_keras",
        "Version: 0.0.1",
    )
    monkeypatch.chdir(tmp_path)
    with ray_cluster(1) as cluster:
        cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(folder.parent)})
        sentence = refused(start(cluster, *command))
    assert " has t2t_keras 0.0.1, and this machine" in sentence
