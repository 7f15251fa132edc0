r"""Benchmark of `t2t serve` with several engines, and of CTranslate2 in plain Python.

    python benchmarks/serve_engines.py --input test2016.en \
        --models savedmodel=served/1 ctranslate2=served/ct2 --clients 1 32 200

Each model has a server in a separate process, and the rounds of all models alternate.
The directory of a CTranslate2 export also runs without a server: each client is a
thread that calls `translate_batch` with its sentence. `t2t translate` translates the
whole input for comparison.
"""

import argparse
import contextlib
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import timing
import workload
from serve import T2T, Connect, measure, server

from t2t_keras.cli.command import positive, positive_number


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", required=True, nargs="+", help="name=directory")
    parser.add_argument("--input", required=True, help="one sentence per line")
    parser.add_argument("--clients", type=positive, nargs="+", default=[1, 32, 200])
    parser.add_argument("--seconds", type=positive_number, default=5.0)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--json", action="store_true", help="as in train.py")
    args = parser.parse_args(argv)
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()
    models = dict(model.split("=", 1) for model in args.models)
    found: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    with contextlib.ExitStack() as stack:
        servers = {k: stack.enter_context(server(v)) for k, v in models.items()}
        clients: dict[str, Connect] = {}
        for name, path in models.items():
            add(f"{name} seconds to start", servers[name].seconds)
            clients[name] = servers[name].client
            if (Path(path) / "model.bin").exists():
                clients[f"{name} in Python"] = plain(path)
        for number in range(args.rounds + 1):  # the first one warms up
            for count in args.clients:
                for name, connect in clients.items():
                    rates = measure(connect, [lines] * count, count, args.seconds)
                    for metric, value in rates.items() if number else ():
                        add(f"{name}, {count} clients: {metric}", value)
            for name, path in models.items() if number else ():
                add(
                    f"{name} by t2t translate: texts_per_s",
                    translated(path, args.input),
                )
        for name, served in servers.items():
            status = Path(f"/proc/{served.pid}/status").read_text(encoding="utf-8")
            peak = status.partition("VmHWM:")[2].split()[0]
            add(f"{name} peak MB", int(peak) / 1024)
    medians = {name: statistics.median(values) for name, values in found.items()}
    report = {"device": workload.processor(), "rounds": args.rounds, **medians}
    timing.show(report, args.json)
    return report


def plain(path: str) -> Connect:
    """Returns clients of CTranslate2's `Translator` in this process, beam 4."""
    import ctranslate2
    import sentencepiece

    engine = ctranslate2.Translator(path, inter_threads=2, intra_threads=1)
    pieces = sentencepiece.SentencePieceProcessor(
        model_file=str(Path(path) / "source.spm")
    )

    def send(text: str) -> None:
        tokens = [*pieces.encode(text, out_type=str), "</s>"]
        options = {"beam_size": 4, "length_penalty": 0.6}
        (result,) = engine.translate_batch([tokens], **options)
        pieces.decode(result.hypotheses[0])

    @contextlib.contextmanager
    def connect() -> Iterator[Callable[[str], None]]:
        yield send

    return connect


def translated(path: str, source: str) -> float:
    """Returns the sentences per second of `t2t translate`, without its start."""
    flags = ["--export_dir", path, "--input", source]
    process = subprocess.run(
        [*T2T, "translate", *flags],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(process.stderr.rpartition("(")[2].split()[0].replace(",", ""))


if __name__ == "__main__":
    main()
