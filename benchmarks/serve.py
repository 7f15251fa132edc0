"""Benchmark of `t2t serve`: sentences per second with and without dynamic batching.

    python benchmarks/serve.py --model runs/base --input source.txt --json

The server runs in a separate process; each client is a thread that sends its next
sentence when it has the answer to the last one. With and without batching alternate, so
that a machine that slows down for a while slows both.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import timing
import workload

from t2t_keras.cli.verb import positive, positive_number


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="a run directory or an export")
    parser.add_argument("--input", required=True, help="one sentence per line")
    parser.add_argument("--clients", type=positive, default=32)
    parser.add_argument(
        "--batch", type=positive, default=64, help="in the batched server"
    )
    parser.add_argument(
        "--seconds", type=positive_number, default=10.0, help="of each measurement"
    )
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--json", action="store_true", help="as of train.py")
    args = parser.parse_args(argv)
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()
    sentences = [line for line in lines if line.strip()]
    found: dict[str, list[tuple[float, float, float]]] = {"batched": [], "single": []}
    with _server(args.model, args.batch) as batched, _server(args.model, 1) as single:
        ports = {"batched": batched, "single": single}
        for port in ports.values():  # the shapes of batches of all sizes
            _measure(port, sentences, args.clients, args.seconds / 2)
        for _ in range(args.rounds):
            for name, port in ports.items():
                measured = _measure(port, sentences, args.clients, args.seconds)
                found[name].append(measured)
    report: dict[str, Any] = {"device": workload.processor(), "clients": args.clients}
    names = ("sentences_per_s", "median_ms", "p95_ms")
    for name, rounds in found.items():
        for metric, values in zip(names, zip(*rounds, strict=True), strict=True):
            report[f"{name}_{metric}"] = statistics.median(values)
    report["speedup"] = (
        report["batched_sentences_per_s"] / report["single_sentences_per_s"]
    )
    timing.show(report, args.json)
    return report


@contextlib.contextmanager
def _server(model: str, batch: int) -> Iterator[int]:
    """Starts a server that runs batches of a size; yields its port."""
    code = "import sys; from t2t_keras.cli import main; sys.exit(main())"
    flags = ("--model", f"model={model}", "--port", "0", "--max_batch_sentences")
    command = [sys.executable, "-c", code, "serve", *flags, str(batch)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = (x for x in process.stderr if x.startswith("t2t serve: http"))
        port = int(next(lines).rstrip("/\n").rpartition(":")[2])
        while not _is_ready(port):
            time.sleep(0.2)
        yield port
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


def _measure(
    port: int, sentences: list[str], clients: int, seconds: float
) -> tuple[float, float, float]:
    """Returns sentences per second, and the median and 95% of the milliseconds."""
    numbers = itertools.count()
    end = time.monotonic() + seconds
    times: list[float] = []

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while (start := time.monotonic()) < end:
            text = sentences[next(numbers) % len(sentences)]
            body = json.dumps({"instances": [text]})
            connection.request("POST", "/v1/models/model:predict", body)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            times.append(1000 * (time.monotonic() - start))
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = time.monotonic() - start
    ranked = sorted(times)
    return (
        len(ranked) / passed,
        statistics.median(ranked),
        ranked[int(0.95 * len(ranked))],
    )


if __name__ == "__main__":
    main()
