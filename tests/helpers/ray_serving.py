"""The example of Ray Serve on a cluster of this machine, and clients that ask it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import yaml
from helpers.translation_clients import free_port, wait_until

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
