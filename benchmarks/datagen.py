"""Benchmark of data generation, compared with the tokenizer alone.

    python benchmarks/datagen.py --source train.en.gz --target train.de.gz --json

Makes a data directory as `t2t datagen` does, then encodes the corpus again in this
process, alternately with SentencePiece alone. Both rates are per second of processor
time, which other programs do not affect. Without files, the corpus is several copies of
the toy problem's.

    python benchmarks/datagen.py --sizes 1 3 10

Measures how the cost grows, with synthetic pairs of short lines, for sizes in millions
of pairs: time and memory of datagen, of planning the batches of an epoch, and of a
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
from typing import Any

import sentencepiece

from t2t_keras import registry
from t2t_keras.cli.command import positive, table
from t2t_keras.data.datagen import generate
from t2t_keras.data.encoding import EncodingConfig, PairEncoder
from t2t_keras.data.encoding_pool import CHUNK
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.parallel_files import ParallelFiles
from t2t_keras.problem import Pair, Problem

TOY_COPIES = 3


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark that the flags describe; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", metavar="FILE", help="source sentences")
    parser.add_argument("--target", metavar="FILE", help="their translations")
    parser.add_argument("--vocab_size", type=positive, help="tokens (8000; toy: 1000)")
    parser.add_argument("--workers", type=positive, default=2, help="processes")
    parser.add_argument(
        "--pairs",
        type=positive,
        default=100_000,
        help="pairs to encode in this process",
    )
    parser.add_argument(
        "--sizes", type=float, nargs="+", help="millions of synthetic pairs"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.sizes:
        rows = []
        for size in args.sizes:
            rows.append(_growth(round(size * 1e6), args.workers))
            print(json.dumps(rows[-1]) if args.json else table(rows[-1]), flush=True)
        return {"sizes": rows}
    if bool(args.source) != bool(args.target):
        parser.error("--source and --target go together")

    with tempfile.TemporaryDirectory() as directory:
        problem = _problem(args, Path(directory))
        data_dir = Path(directory) / "data"
        report = _whole(problem, data_dir, args.workers)
        report |= _encoding(problem, data_dir, args.pairs)
    print(json.dumps(report) if args.json else table(report))
    return report


def _problem(args: argparse.Namespace, directory: Path) -> Problem:
    """Returns the problem of the files, or of the toy grammar written to files."""
    files, vocab_size = (args.source, args.target), args.vocab_size or 8000
    if not args.source:
        toy = registry.problem("translate_ende_toy")
        pairs = list(toy.source("train")()) * TOY_COPIES
        files = directory / "source", directory / "target"
        for file, lines in zip(files, zip(*pairs, strict=True), strict=True):
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        vocab_size = args.vocab_size or toy.vocab_size
    return registry.problem("translate_text").replace(
        sources={"train": ParallelFiles(*files)}, vocab_size=vocab_size
    )


def _whole(problem: Problem, data_dir: Path, workers: int) -> dict[str, Any]:
    """Generates the data; returns time and memory, with training the vocabulary."""
    start, cpu = time.perf_counter(), _cpu_seconds()
    manifest = generate(problem, data_dir, workers)
    seconds = time.perf_counter() - start
    pairs = manifest.examples["train"] + sum(manifest.dropped["train"].values())
    return {
        "pairs": pairs,
        "workers": workers,
        "seconds": seconds,
        "cpu_seconds": _cpu_seconds() - cpu,
        "pairs_per_s": pairs / seconds,
        # The peak of the largest process, in Linux's unit; other systems' units differ.
        "peak_rss_mb": max(usage.ru_maxrss for usage in _usages()) / 1024,
    }


# Each runs in a separate process, so that its peak memory can be measured.
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
from t2t_keras.data.batch_plan import batch_plan
from t2t_keras.data.pipeline import training_batches, training_index

def memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":") for line in lines)
    return [int(found[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")]

next(iter(__import__("tensorflow").data.Dataset.range(1)))
before, start = memory()[0], time.perf_counter()
index = training_index(Path(sys.argv[1]), registry.problem("translate_text"))
opened = time.perf_counter()
lengths = index.source_length, index.target_length
plan = batch_plan("exact", *lengths, 25_000, 0)
plan.records(0)
planned, (held, peak) = time.perf_counter(), memory()
next(iter(training_batches(index, plan, range(2))))
print(json.dumps({
    "index_seconds": opened - start,
    "planning_seconds": planned - opened,
    "first_batch_seconds": time.perf_counter() - planned,
    "held_bytes_per_pair": (held - before) / len(index),
    "peak_bytes_per_pair": (peak - before) / len(index),
}))
"""


def _growth(pairs: int, workers: int) -> dict[str, Any]:
    """Returns what datagen, planning and the start of a training take."""
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory, name) for name in ("source", "target", "datagen.py")]
        files[2].write_text(_DATAGEN, encoding="utf-8")
        rng = random.Random(0)
        words = ["".join(rng.choices(string.ascii_lowercase, k=5)) for _ in range(5000)]
        for file in files[:2]:
            with file.open("w", encoding="utf-8") as lines:
                for _ in range(pairs):
                    lines.write(
                        " ".join(rng.choices(words, k=rng.randint(3, 9))) + "\n"
                    )
        data_dir = Path(directory, "data")
        argv = [*files[:2], data_dir, workers]
        start, cpu = time.perf_counter(), _cpu_seconds()
        command = [sys.executable, "-c", _PEAK, sys.executable, files[2]]
        peak = subprocess.check_output([*map(str, [*command, *argv])], text=True)
        seconds, cpu = time.perf_counter() - start, _cpu_seconds() - cpu
        begin = [sys.executable, "-c", _START, str(data_dir)]
        found = json.loads(subprocess.check_output(begin, text=True).splitlines()[-1])
        return {
            "pairs": pairs,
            "datagen_seconds": seconds,
            "datagen_cpu_seconds": cpu,
            "datagen_peak_mb": int(peak.split()[-1]) / 1024,
            "disk_mb": sum(f.stat().st_size for f in data_dir.iterdir()) / 1e6,
            **found,
        }


# Prints the peak of the largest process of a command.
_PEAK = """
import resource, subprocess, sys
subprocess.check_call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def _usages() -> list[resource.struct_rusage]:
    return [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]


def _cpu_seconds() -> float:
    """Seconds of the processor, of this process and those that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in _usages())


def _encoding(problem: Problem, data_dir: Path, pairs: int) -> dict[str, Any]:
    """Encodes chunks of pairs, alternately by datagen and by SentencePiece alone."""
    manifest = Manifest.open(data_dir, problem.data_name)
    vocabulary = data_dir / manifest.vocab_files["source"]
    encoder = PairEncoder(vocabulary, vocabulary)
    alone = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    config = EncodingConfig(num_shards=100, seed=0, max_length=problem.max_length)
    count, ours, theirs = 0, 0.0, 0.0
    for chunk in itertools.islice(_chunks(problem), -(-pairs // CHUNK)):
        start = time.process_time()
        encoder(count, chunk, config)
        middle = time.process_time()
        for side in zip(*chunk, strict=True):
            alone.encode(list(side), add_eos=True, num_threads=1)
        end = time.process_time()
        count, ours, theirs = (
            count + len(chunk),
            ours + middle - start,
            theirs + end - middle,
        )
    return {
        "encoding_pairs_per_s_per_core": count / ours,
        "tokenizer_pairs_per_s_per_core": count / theirs,
        "fraction_of_tokenizer": theirs / ours,
    }


def _chunks(problem: Problem) -> Iterator[list[Pair]]:
    """Yields the training pairs as datagen hands them to a worker."""
    pairs = iter(problem.source("train")())
    while chunk := list(itertools.islice(pairs, CHUNK)):
        yield chunk


if __name__ == "__main__":
    main()
