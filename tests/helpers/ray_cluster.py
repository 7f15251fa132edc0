"""A Ray cluster of this machine: a head and workers, each with its processes."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil

MAIN = "import sys; from t2t_keras.cli import main; sys.exit(main())"


@contextlib.contextmanager
def ray_cluster(
    *cores: int, dashboard_port: int | None = None, **settings: Any
) -> Iterator[Any]:
    """Yields a `Cluster` whose head has no cores, and whose workers have some."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": dashboard_port is not None}
    if dashboard_port is not None:
        head["dashboard_port"] = dashboard_port
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for count in cores:
            cluster.add_node(num_cpus=count, **settings)
        yield cluster
    finally:
        cluster.shutdown()


def actor_processes(
    cluster: Any, name: str = "ray::MapWorker(Map(TextWorker))"
) -> list[Any]:
    """Returns the processes of actors on the cluster's nodes."""
    processes = []
    for node in cluster.worker_nodes:
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for child in raylet.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.cmdline() and child.cmdline()[0].startswith(name):
                    processes.append(child)
    return processes


def start(
    cluster: Any, command: str, *words: object, code: str = ""
) -> subprocess.Popen[str]:
    """Starts a command of `t2t` on a cluster, after some code."""
    line = [sys.executable, "-c", code + MAIN, command, "--cluster", cluster.address]
    return subprocess.Popen(
        [*line, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
