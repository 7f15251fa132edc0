"""The example of Ray Serve on a cluster of this machine, and clients that ask it."""

import contextlib
import http.client
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_serve"
WAIT_SECONDS = 240


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        sentence: what was to be translated.
        status: the HTTP status; 0: the connection was lost.
        output: the translation, or the error.
    """

    sentence: str
    status: int
    output: str


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


@contextlib.contextmanager
def asking(port: int, sentences: Sequence[str], clients: int) -> Iterator[list[Answer]]:
    """Sends sentences during the `with` block; yields the list of answers.

    Each client has a connection, on which it sends a sentence when the previous one is
    answered. At the end, all requests are answered.
    """
    answers: list[Answer] = []
    indices = itertools.count()
    is_over = threading.Event()

    def ask() -> None:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        ) as connection:
            while not is_over.is_set():
                sentence = sentences[next(indices) % len(sentences)]
                answers.append(request(connection, sentence))

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def request(connection: http.client.HTTPConnection, sentence: str) -> Answer:
    """Returns the answer to a request for a translation."""
    body = json.dumps({"instances": [sentence]})
    try:
        connection.request("POST", "/v1/models/ende:predict", body)
        response = connection.getresponse()
        content = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return Answer(sentence, 0, repr(error))
    if response.status == 200:
        content = json.loads(content)["predictions"][0]["texts"][0]
    return Answer(sentence, response.status, content)


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, for at most four minutes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def free_port() -> int:
    """Returns a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
