r"""Benchmark of `t2t serve`: texts per second and latency of several models.

    python benchmarks/serve.py --input test2016.en --clients 1 32 200 \
        --models savedmodel=served/1 ctranslate2=served/ct2

Each model has a server in a separate process; each client is a thread that sends its
next text after the answer to the previous one. The rounds of all models alternate, so
that a slow phase of the machine affects all. For comparison, `t2t translate` translates
the whole input.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import workload

from t2t_keras.processes import T2T

_HEAD = (
    b"POST /v1/models/model:predict HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: %d\r\n\r\n"
)


def main() -> None:
    """Runs the benchmark and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--models",
        required=True,
        nargs="+",
        metavar="NAME=DIRECTORY",
        help="run directories and exports",
    )
    parser.add_argument("--input", required=True, help="one sentence per line")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32, 200])
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="seconds of each measurement",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="as in train.py")
    args = parser.parse_args()
    report: dict[str, object] = {
        "device": workload.processor(),
        "rounds": args.rounds,
    }
    workload.print_report(report | _medians(args), args.json)


def _medians(args: argparse.Namespace) -> dict[str, float]:
    """Returns the median of each measurement over the rounds."""
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()
    sentences = [line for line in lines if line.strip()]
    models = dict(model.split("=", 1) for model in args.models)
    values: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        values.setdefault(name, []).append(value)

    with contextlib.ExitStack() as stack:
        servers: dict[str, Server] = {}
        for name, path in models.items():
            servers[name] = stack.enter_context(server(path))
            add(f"{name} seconds to start", servers[name].seconds)

        for i in range(args.rounds + 1):
            results = _measure_all(servers, sentences, args)
            if i == 0:
                continue  # The first round warms up.
            for name, path in models.items():
                add(
                    f"{name} by t2t translate: texts_per_s", translate(path, args.input)
                )
            for name, value in results.items():
                add(name, value)
        for name, process in servers.items():
            add(f"{name} peak MB", process.peak_mb())
    return {name: statistics.median(measured) for name, measured in values.items()}


def _measure_all(
    servers: "dict[str, Server]", sentences: list[str], args: argparse.Namespace
) -> dict[str, float]:
    """Returns rate and latencies of each model with each number of clients."""
    results: dict[str, float] = {}
    for count, (name, running) in itertools.product(args.clients, servers.items()):
        measured = measure(running, sentences, count, args.seconds)
        for metric, value in measured.items():
            results[f"{name}, {count} clients: {metric}"] = value
    return results


class Server(NamedTuple):
    """A running server.

    Attributes:
        port: the port that it listens on.
        pid: the id of its process.
        seconds: from the start of the process until the model was ready.
    """

    port: int
    pid: int
    seconds: float

    @contextlib.contextmanager
    def client(self) -> Iterator[Callable[[str], None]]:
        """Yields a function that sends a text and waits for the answer.

        The clients share the cores with the server, so they do not use `http.client`,
        which would take a large part of their time.
        """
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=150)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send(text: str) -> None:
            body = json.dumps({"instances": [text]}).encode()
            connection.sendall(_HEAD % len(body) + body)
            status = answer.readline()
            assert b" 200 " in status, status
            length = 0
            while (line := answer.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            assert len(answer.read(length)) == length

        with connection, connection.makefile("rb") as answer:
            yield send

    def peak_mb(self) -> float:
        """Returns the peak memory of the process so far."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextlib.contextmanager
def server(model: str, seconds: int = 120) -> Iterator[Server]:
    """Starts a server.

    Args:
        model: a run directory or an export.
        seconds: after which a request is refused.
    """
    limits = f"max_batch_sentences=64,timeout_seconds={seconds}"
    command = [
        sys.executable,
        *T2T,
        "serve",
        "--model",
        f"model={model}",
        "--port",
        "0",
    ]
    command += ["--limits", limits]
    start = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = _announced_port(process.stderr)
        while not _is_ready(port):
            time.sleep(0.05)
        yield Server(port, process.pid, time.monotonic() - start)
    finally:
        process.terminate()
        process.wait()


def _announced_port(lines: Iterable[str]) -> int:
    """Returns the port of the address that a server prints."""
    for line in lines:
        if line.startswith("t2t serve: http"):
            return int(line.rstrip("/\n").rpartition(":")[2])
    raise RuntimeError("the server stopped before it was ready")


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()


def measure(
    running: Server, sentences: list[str], clients: int, seconds: float
) -> dict[str, float]:
    """Returns the rate and latencies of clients that send texts for some seconds."""
    indices = itertools.count()
    deadline = time.monotonic() + seconds
    latencies: list[float] = []

    def client() -> None:
        with running.client() as send:
            while (start := time.monotonic()) < deadline:
                send(sentences[next(indices) % len(sentences)])
                latencies.append(1000 * (time.monotonic() - start))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    duration = time.monotonic() - start
    latencies.sort()
    return {
        "texts_per_s": len(latencies) / duration,
        "p50_ms": statistics.median(latencies),
        "p99_ms": latencies[int(0.99 * len(latencies))],
    }


def translate(path: str, source: str) -> float:
    """Returns the sentences per second of `t2t translate`, without its start."""
    process = subprocess.run(
        [sys.executable, *T2T, "translate", path, "--input", source],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(process.stderr.rpartition("(")[2].split()[0].replace(",", ""))


if __name__ == "__main__":
    main()
