"""Benchmark of `t2t serve`: latency of short texts with and without long ones.

    python benchmarks/serve.py --model runs/base --input source.txt --json

The server runs in a separate process; each client is a thread that sends its next text
after the answer to the last one. Rounds with and without long texts, and with and
without dynamic batching, alternate, so that a slow phase of the machine affects all.
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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import timing
import workload

from t2t_keras.cli.command import positive, positive_number

# `t2t` of this environment.
T2T = (
    sys.executable,
    "-c",
    "import sys; from t2t_keras.cli import main; sys.exit(main())",
)


_HEAD = (
    b"POST /v1/models/model:predict HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: %d\r\n\r\n"
)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="a run directory or an export")
    parser.add_argument("--input", required=True, help="one sentence per line")
    parser.add_argument("--clients", type=positive, default=32)
    parser.add_argument("--long_clients", type=positive, default=4)
    parser.add_argument(
        "--characters", type=positive, default=2000, help="characters of a long text"
    )
    parser.add_argument(
        "--seconds",
        type=positive_number,
        default=10.0,
        help="seconds of each measurement",
    )
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--json", action="store_true", help="as in train.py")
    args = parser.parse_args(argv)
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()
    sentences = [line for line in lines if line.strip()]
    joined = " ".join(sentences)
    starts = range(0, max(len(joined) - args.characters, 1), args.characters)
    texts = [joined[start : start + args.characters] for start in starts]
    found: dict[str, list[dict[str, float]]] = {}
    with server(args.model) as many, server(args.model, 1) as single:
        cases = {"short": (many, 0), "beside_long": (many, args.long_clients)}
        cases["unbatched"] = (single, 0)
        for number in range(args.rounds + 1):  # the first one warms up
            for name, (served, count) in cases.items():
                clients = [sentences] * args.clients + [texts] * count
                connect = served.client
                measured = measure(connect, clients, args.clients, args.seconds)
                found.setdefault(name, [])
                if number:
                    found[name].append(measured)
    report: dict[str, Any] = {"device": workload.processor(), "clients": args.clients}
    report |= {"long_clients": args.long_clients, "characters": args.characters}
    for name, rounds in found.items():
        for metric in rounds[0]:
            values = [measured[metric] for measured in rounds]
            report[f"{name}_{metric}"] = statistics.median(values)
    for metric in ("p50_ms", "p99_ms"):
        report[f"ratio_{metric}"] = (
            report[f"beside_long_{metric}"] / report[f"short_{metric}"]
        )
    report["speedup"] = report["short_texts_per_s"] / report["unbatched_texts_per_s"]
    timing.show(report, args.json)
    return report


# Opens a client's connection: a function that has a text translated.
Connect: TypeAlias = Callable[[], AbstractContextManager[Callable[[str], None]]]


class Server(NamedTuple):
    """A server that runs.

    Attributes:
        port: where it listens.
        pid: its process.
        seconds: from the start of the process until the model is ready.
    """

    port: int
    pid: int
    seconds: float

    @contextlib.contextmanager
    def client(self) -> Iterator[Callable[[str], None]]:
        """Yields a function that sends a text and waits for the answer.

        The clients share the cores with the server: `http.client` would take a large
        part of their time.
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


@contextlib.contextmanager
def server(model: str, batch: int = 64, seconds: int = 120) -> Iterator[Server]:
    """Starts a server with a limit of batches, and of the seconds of a request."""
    flags = ("--model", f"model={model}", "--port", "0", "--limits")
    flags += (f"max_batch_sentences={batch},timeout_seconds={seconds}",)
    command = [*T2T, "serve", *flags]
    start = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = (x for x in process.stderr if x.startswith("t2t serve: http"))
        port = int(next(lines).rstrip("/\n").rpartition(":")[2])
        while not _is_ready(port):
            time.sleep(0.05)
        yield Server(port, process.pid, time.monotonic() - start)
    finally:
        process.terminate()
        process.wait()


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
    connect: Connect,
    clients: list[list[str]],
    measured: int,
    seconds: float,
) -> dict[str, float]:
    """Returns rate and latencies of the first clients.

    Args:
        connect: opens the connection of a client.
        clients: the texts of each client.
        measured: the number of clients that are measured.
        seconds: how long they ask.
    """
    numbers = itertools.count()
    end = time.monotonic() + seconds
    times: list[float] = []

    def client(texts: list[str], is_measured: bool) -> None:
        with connect() as send:
            while (start := time.monotonic()) < end:
                send(texts[next(numbers) % len(texts)])
                if is_measured:
                    times.append(1000 * (time.monotonic() - start))

    threads = [
        threading.Thread(target=client, args=(texts, number < measured))
        for number, texts in enumerate(clients)
    ]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads[:measured]:
        thread.join()
    passed = time.monotonic() - start
    for thread in threads:
        thread.join()
    ranked = sorted(times)
    return {
        "texts_per_s": len(ranked) / passed,
        "p50_ms": statistics.median(ranked),
        "p99_ms": ranked[int(0.99 * len(ranked))],
    }


if __name__ == "__main__":
    main()
