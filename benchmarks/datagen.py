"""Benchmark of data generation, compared with the tokenizer alone.

    python benchmarks/datagen.py --source train.en.gz --target train.de.gz --json

Makes a data directory as `t2t datagen` does, then encodes the corpus again in this
process, alternately with SentencePiece alone. Both rates are per second of processor
time, which other programs do not affect. Without files, the toy problem's pairs are
encoded several times.

    python benchmarks/datagen.py --sizes 1 3 10

Measures how the cost grows with the number of pairs, given in millions of synthetic
short lines: time and memory of datagen, of planning the batches of an epoch, and of a
training up to its first batch.
"""

import argparse
import itertools
import json
import random
import resource
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

from t2t_keras import registry
from t2t_keras.console import table
from t2t_keras.data.datagen import generate
from t2t_keras.data.encode_splits import CHUNK
from t2t_keras.data.encoding import EncodingConfig, PairEncoder
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.problem import Pair, Problem

TOY_COPIES = 3


def main() -> None:
    """Runs the benchmark that the flags describe and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", metavar="FILE", help="source sentences")
    parser.add_argument("--target", metavar="FILE", help="their translations")
    parser.add_argument("--vocab_size", type=int, help="tokens (8000; toy: 1000)")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument(
        "--pairs",
        type=int,
        default=100_000,
        help="pairs to encode in this process",
    )
    parser.add_argument(
        "--sizes", type=float, nargs="+", help="millions of synthetic pairs"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if bool(args.source) != bool(args.target):
        parser.error("--source and --target go together")
    if args.sizes:
        for size in args.sizes:
            _print(_cost_of_size(round(size * 1e6), args.workers), args.json)
        return
    with tempfile.TemporaryDirectory() as directory:
        problem = _problem(args, Path(directory))
        data_dir = Path(directory) / "data"
        report = _cost_of_datagen(problem, data_dir, args.workers)
        report |= _encoding_rates(problem, data_dir, args.pairs)
    _print(report, args.json)


def _print(report: dict[str, float], as_json: bool) -> None:
    print(json.dumps(report) if as_json else table(report), flush=True)


def _problem(args: argparse.Namespace, directory: Path) -> Problem:
    """Returns the problem of the files, or of the toy grammar written to files."""
    if args.source:
        files = (args.source, args.target)
        vocab_size = args.vocab_size or 8000
    else:
        toy = registry.problem("translate_ende_toy")
        pairs = list(toy.source("train")()) * TOY_COPIES
        files = (directory / "source", directory / "target")
        for file, lines in zip(files, zip(*pairs, strict=True), strict=True):
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        vocab_size = args.vocab_size or toy.vocab_size
    return registry.problem("translate_text").replace(
        sources={"train": ParallelFiles(*files)}, vocab_size=vocab_size
    )


def _cost_of_datagen(
    problem: Problem, data_dir: Path, workers: int
) -> dict[str, float]:
    """Generates the data; returns time and memory, with training the vocabulary."""
    start = time.perf_counter()
    start_cpu = _cpu_seconds()
    manifest = generate(problem, data_dir, workers)
    seconds = time.perf_counter() - start
    pairs = manifest.examples["train"] + sum(manifest.dropped["train"].values())
    return {
        "pairs": pairs,
        "workers": workers,
        "seconds": seconds,
        "cpu_seconds": _cpu_seconds() - start_cpu,
        "pairs_per_s": pairs / seconds,
        # The peak of the largest process, in Linux's unit; other systems' units differ.
        "peak_rss_mb": max(usage.ru_maxrss for usage in _usages()) / 1024,
    }


# Programs that run in separate processes, so that their peak memory can be measured.
_DATAGEN = """
import sys
from t2t_keras import registry
from t2t_keras.data.datagen import generate
from t2t_keras.data.sources import ParallelFiles

if __name__ == "__main__":
    source, target, data_dir, workers = sys.argv[1:]
    files = ParallelFiles(source, target)
    problem = registry.problem("translate_text").replace(
        sources={"train": files}, vocab_size=8000
    )
    generate(problem, data_dir, int(workers))
"""
_START = """
import json, resource, sys, time
from pathlib import Path
from t2t_keras import registry
from t2t_keras.data.training_data import batch_plan
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.training_data import training_index

def memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":") for line in lines)
    return [int(status[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")]

next(iter(__import__("tensorflow").data.Dataset.range(1)))
initial, _ = memory()
start = time.perf_counter()
index = training_index(Path(sys.argv[1]), registry.problem("translate_text"))
opened = time.perf_counter()
lengths = index.source_length, index.target_length
plan = batch_plan("exact", *lengths, 25_000, 0)
plan.records(0)
planned = time.perf_counter()
current, peak = memory()
next(iter(training_batches(index, plan, range(2))))
print(json.dumps({
    "index_seconds": opened - start,
    "planning_seconds": planned - opened,
    "first_batch_seconds": time.perf_counter() - planned,
    "held_bytes_per_pair": (current - initial) / len(index),
    "peak_bytes_per_pair": (peak - initial) / len(index),
}))
"""


def _cost_of_size(pairs: int, workers: int) -> dict[str, float]:
    """Returns what datagen, planning and the start of a training take."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "datagen.py")
        program.write_text(_DATAGEN, encoding="utf-8")
        files = [Path(directory, "source"), Path(directory, "target")]
        _write_synthetic_pairs(files, pairs)
        data_dir = Path(directory, "data")
        command = [sys.executable, program, *files, data_dir, workers]
        start = time.perf_counter()
        start_cpu = _cpu_seconds()
        peak = _run(_PEAK, *command)
        seconds = time.perf_counter() - start
        cpu_seconds = _cpu_seconds() - start_cpu
        return {
            "pairs": pairs,
            "datagen_seconds": seconds,
            "datagen_cpu_seconds": cpu_seconds,
            "datagen_peak_mb": int(peak) / 1024,
            "disk_mb": sum(f.stat().st_size for f in data_dir.iterdir()) / 1e6,
            **json.loads(_run(_START, data_dir)),
        }


def _write_synthetic_pairs(files: list[Path], pairs: int) -> None:
    """Writes lines of 3 to 9 random words."""
    rng = random.Random(0)
    words = ["".join(rng.choices(string.ascii_lowercase, k=5)) for _ in range(5000)]
    for file in files:
        with file.open("w", encoding="utf-8") as lines:
            for _ in range(pairs):
                lines.write(" ".join(rng.choices(words, k=rng.randint(3, 9))) + "\n")


def _run(program: str, *arguments: object) -> str:
    """Runs a program of Python; returns the last line that it prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.check_output(command, text=True).splitlines()[-1]


# Prints the peak of the largest process of a command.
_PEAK = """
import resource, subprocess, sys
subprocess.check_call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def _usages() -> list[resource.struct_rusage]:
    return [
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    ]


def _cpu_seconds() -> float:
    """Returns the processor's seconds of this process and of those that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in _usages())


def _encoding_rates(problem: Problem, data_dir: Path, pairs: int) -> dict[str, float]:
    """Encodes chunks of pairs, alternately by datagen and by SentencePiece alone."""
    manifest = Manifest.open(data_dir, problem.data_name)
    vocabulary = data_dir / manifest.vocab_files["source"]
    encoder = PairEncoder(vocabulary, vocabulary)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    config = EncodingConfig(num_shards=100, seed=0, max_length=problem.max_length)
    count = 0
    encoder_seconds = 0.0
    tokenizer_seconds = 0.0
    for chunk in itertools.islice(_chunks(problem), -(-pairs // CHUNK)):
        start = time.process_time()
        encoder(count, chunk, config)
        encoded = time.process_time()
        for side in zip(*chunk, strict=True):
            tokenizer.encode(list(side), add_eos=True, num_threads=1)
        encoder_seconds += encoded - start
        tokenizer_seconds += time.process_time() - encoded
        count += len(chunk)
    return {
        "encoding_pairs_per_s_per_core": count / encoder_seconds,
        "tokenizer_pairs_per_s_per_core": count / tokenizer_seconds,
        "fraction_of_tokenizer": tokenizer_seconds / encoder_seconds,
    }


def _chunks(problem: Problem) -> Iterator[list[Pair]]:
    """Yields the training pairs in the chunks that datagen gives to a worker."""
    pairs = iter(problem.source("train")())
    while chunk := list(itertools.islice(pairs, CHUNK)):
        yield chunk


if __name__ == "__main__":
    main()
