"""Benchmark of data generation, compared with the tokenizer alone.

    python benchmarks/datagen.py --source train.en.gz --target train.de.gz --json

Makes a data directory as `t2t datagen` does, then encodes the corpus again in this
process, alternately with SentencePiece alone. Both rates are per second of processor
time, which other programs do not affect. Without files, the corpus is several copies of
the toy problem's.
"""

import argparse
import itertools
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece

from t2t_keras import registry
from t2t_keras.cli.verb import positive, table
from t2t_keras.data.datagen import generate
from t2t_keras.data.encoding import CHUNK, Encoder, Rule
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.sources import ParallelFiles
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
        "--pairs", type=positive, default=100_000, help="encoded in this process"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
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
    encoder = Encoder(vocabulary, vocabulary)
    alone = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    rule = Rule(num_shards=100, seed=0, max_length=problem.max_length)
    count, ours, theirs = 0, 0.0, 0.0
    for chunk in itertools.islice(_chunks(problem), -(-pairs // CHUNK)):
        start = time.process_time()
        encoder(count, chunk, rule)
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
