"""Benchmark of `t2t serve`: requests of different sizes beside each other.

    python benchmarks/serve_request_sizes.py --model served/1 --input test.en

Each client sends a request of a random size, reads the answer, and sends the next one
up to a second later. The report says for each size how many requests were sent, which
share of them was answered, and how long the answers took.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path

import workload
from serve import server

from t2t_keras.cli.command import positive, positive_number

# Size -> requests among 100, sentences in a request, lines joined in a sentence.
SIZES = {
    "1 sentence": (75, 1, 1),
    "5 sentences": (15, 5, 1),
    "30 sentences": (4, 30, 1),
    "1 of 5 lines": (5, 1, 5),
    "1 of 40 lines": (1, 1, 40),
}


class Clients:
    """Clients of a server.

    Args:
        port: the port of the server.
        lines: the sentences to send.
        seconds: how long the clients send requests.

    Attributes:
        counts: the number of answers by size and status.
        times: the seconds until each answer with status 200, by size.
    """

    def __init__(self, port: int, lines: list[str], seconds: float) -> None:
        self._port = port
        self._lines = lines
        self._deadline = time.monotonic() + seconds
        self.counts: Counter[tuple[str, int]] = Counter()
        self.times: dict[str, list[float]] = defaultdict(list)

    def total(self, name: str) -> int:
        """Returns how many requests of a size got an answer or were refused."""
        return sum(n for (size, _), n in self.counts.items() if size == name)

    async def run(self, seed: int) -> None:
        """Sends requests as one client until the time is up."""
        rng = random.Random(seed)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        shares = [share for share, _, _ in SIZES.values()]
        while time.monotonic() < self._deadline:
            (name,) = rng.choices([*SIZES], shares)
            _, sentences, joined = SIZES[name]
            drawn = rng.choices(self._lines, k=sentences * joined)
            starts = range(0, len(drawn), joined)
            texts = [" ".join(drawn[i : i + joined]) for i in starts]
            start = time.monotonic()
            status = await predict(reader, writer, texts)
            self.counts[name, status] += 1
            if status == 200:
                self.times[name].append(time.monotonic() - start)
            await asyncio.sleep(rng.random())
        writer.close()


async def predict(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, texts: list[str]
) -> int:
    """Sends a request and returns the status of the answer."""
    body = json.dumps({"instances": texts}).encode()
    head = "POST /v1/models/model:predict HTTP/1.1\r\nHost: localhost\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = answer.partition("content-length:")[2].partition("\r\n")[0]
    await reader.readexactly(int(length))
    return int(answer.split()[1])


def main() -> None:
    """Runs the benchmark and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="a run directory or an export")
    parser.add_argument("--input", required=True, help="one sentence per line")
    parser.add_argument("--clients", type=positive, default=300)
    parser.add_argument("--seconds", type=positive_number, default=60.0)
    parser.add_argument("--json", action="store_true", help="as in train.py")
    args = parser.parse_args()
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()

    async def measure(port: int) -> Clients:
        clients = Clients(port, lines, args.seconds)
        await asyncio.gather(*map(clients.run, range(args.clients)))
        return clients

    with server(args.model, seconds=30) as process:
        clients = asyncio.run(measure(process.port))
    report: dict[str, object] = {
        "device": workload.processor(),
        "clients": args.clients,
    }
    for name in SIZES:
        times = clients.times[name]
        total = clients.total(name)
        report[name] = {
            "requests": total,
            "answered": len(times) / max(total, 1),
            "p50_s": statistics.median(times or [0.0]),
            "p99_s": sorted(times or [0.0])[int(0.99 * len(times))],
        }
    workload.print_report(report, args.json)


if __name__ == "__main__":
    main()
