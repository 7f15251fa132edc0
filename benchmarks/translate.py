"""Benchmark of translating a file: sentences per second of a trained model.

    python benchmarks/translate.py --output_dir runs/mine --input test.en --json
    python benchmarks/translate.py --output_dir runs/mine --input test.en \
        --engines float32 bfloat16 ctranslate2 ctranslate2:int8

The engines are `float32` and `bfloat16`, this package; `export`, its SavedModel;
`engine`, its CTranslate2 export in float32; and `ctranslate2`, CTranslate2's own
interface in any of its dtypes (the extra `[ctranslate2]`). With the environment
variables TF_NUM_INTRAOP_THREADS=1 and TF_CPU_ALLOCATOR_USE_BFC=true, this package works
as `t2t translate` does: every operation has one thread, two batches or more are decoded
at once, and freed memory is kept. The engines translate the same lines with the same
beam, in turns, `--rounds` times, and except `export` with the same number of source
tokens in a batch; reading the model is not timed.

The report also says how much work was wasted. A *row-step* is one step of the search
for one sentence; it is wasted if the sentence was already done. A *source position* is
wasted if it is padding. `products_gflop` counts the arithmetic of the matrix products
of all steps. `products_s` is the time they take alone in float32, one after another,
with the threads of one operation and the mean number of rows: no search over the same
steps takes less on these threads.
"""

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import products
import rates
import timing
from stopwatch import seconds_of

from t2t_keras.cli.command import positive

_DTYPES = ("float32", "bfloat16")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark that the flags describe; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output_dir", required=True, help="a run directory")
    parser.add_argument("--input", required=True, metavar="FILE")
    parser.add_argument(
        "--sentences", type=positive, help="translate only the first N lines"
    )
    parser.add_argument("--beam_size", type=positive, default=4)
    parser.add_argument("--batch_tokens", type=positive, default=2048)
    parser.add_argument("--rounds", type=positive, default=2)
    parser.add_argument(
        "--engines",
        nargs="+",
        default=["float32", "export"],
        help="float32, bfloat16, export, ctranslate2, ctranslate2:int8 ...",
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()[: args.sentences]
    with tempfile.TemporaryDirectory() as scratch:
        report = _measured(args, lines, Path(scratch))
    timing.show(report, args.json)
    return report


def _measured(
    args: argparse.Namespace, lines: list[str], scratch: Path
) -> dict[str, Any]:
    """Times the engines in turn."""
    report, counted = _waste(args, lines)
    rate = rates.MatmulRate(counted, "float32")
    engines = {name: _engine(name, args, scratch) for name in args.engines}
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for translate in engines.values():
        translate(lines[:50])  # traces, and compiles kernels
    for _ in range(args.rounds):
        for name, translate in engines.items():
            rate.sample()
            seconds[name].append(seconds_of(lambda: translate(lines)))  # noqa: B023
    gflop = products.total_flops(counted) / 1e9
    return {
        "sentences": len(lines),
        "beam_size": args.beam_size,
        "batch_tokens": args.batch_tokens,
        "sentences_per_s": {
            name: len(lines) / statistics.median(times)
            for name, times in seconds.items()
        },
        "seconds": {name: statistics.median(x) for name, x in seconds.items()},
        "products_gflop": gflop,
        "products_s": gflop / rate.gflops(),
        **report,
    }


def _engine(
    name: str, args: argparse.Namespace, scratch: Path
) -> Callable[[list[str]], Any]:
    """Returns the function that translates lines."""
    if name in _DTYPES:
        translator = _translator(args.output_dir, name)
        options = {"beam_size": args.beam_size, "batch_tokens": args.batch_tokens}
        return lambda lines: translator.translate(lines, **options)
    if name == "export":
        from t2t_keras.export.client import ExportedTranslator
        from t2t_keras.export.saved_model import export_saved_model

        translator = _translator(args.output_dir, "float32")
        export_saved_model(translator, scratch / "export", beam_size=args.beam_size)
        return ExportedTranslator(scratch / "export").translate
    if name == "engine":
        from t2t_keras import load
        from t2t_keras.plugins.engines.ctranslate2_model import export_ctranslate2

        translator = _translator(args.output_dir, "float32")
        export_ctranslate2(translator, scratch / "engine", beam_size=args.beam_size)
        return load(scratch / "engine").translate
    return _ctranslate2(name.partition(":")[2], args, scratch)


def _translator(output_dir: str, dtype: str) -> Any:
    """Returns the run's translator, computing in the given dtype."""
    from t2t_keras import load

    return load(output_dir).with_compute_dtype(dtype)


def _ctranslate2(
    arithmetic: str, args: argparse.Namespace, scratch: Path
) -> Callable[[list[str]], Any]:
    """Returns the function by which CTranslate2 translates lines on all cores."""
    import ctranslate2

    from t2t_keras.plugins.engines.ctranslate2_model import export_ctranslate2

    translator = _translator(args.output_dir, "float32")
    if not (scratch / "ctranslate2").exists():
        export_ctranslate2(translator, scratch / "ctranslate2")
    engine = ctranslate2.Translator(
        str(scratch / "ctranslate2"),
        compute_type=arithmetic or "float32",
        inter_threads=os.cpu_count() or 1,  # faster than one batch on all cores
        intra_threads=1,
    )
    source, target = (
        _vocabulary(scratch / "ctranslate2", side) for side in ("source", "target")
    )
    id_of = {token: i for i, token in enumerate(target)}

    def translate(lines: list[str]) -> list[str]:
        sources = translator.source_tokenizer.encode_batch(lines)
        found = engine.translate_batch(
            [[source[i] for i in ids[:-1]] for ids in sources],  # it adds EOS
            beam_size=args.beam_size,
            max_batch_size=args.batch_tokens,
            batch_type="tokens",
            length_penalty=translator.options.alpha,
        )
        outputs = [result.hypotheses[0] for result in found]
        decode = translator.target_tokenizer.decode
        return [decode([id_of[token] for token in output]) for output in outputs]

    return translate


def _vocabulary(export_dir: Path, side: str) -> list[str]:
    """Returns the tokens of one side, in the order of their ids."""
    shared = export_dir / "shared_vocabulary.json"
    path = shared if shared.exists() else export_dir / f"{side}_vocabulary.json"
    return json.loads(path.read_text(encoding="utf-8"))


def _waste(
    args: argparse.Namespace, lines: list[str]
) -> tuple[dict[str, float], list[products.Product]]:
    """Returns the shares of the work that no result depends on, and all products."""
    import tensorflow as tf

    from t2t_keras.decoding import beam_search, translator

    run = _translator(args.output_dir, "float32")
    options = {"beam_size": args.beam_size, "batch_tokens": args.batch_tokens}
    steps, row_steps = (tf.Variable(0, dtype=tf.int64) for _ in range(2))
    positions = {"all": 0, "tokens": 0, "batches": 0}
    decode_step, padded = run.model.decode_step, translator.padded

    def counted_step(ids, position, cache):
        steps.assign_add(1)
        row_steps.assign_add(tf.shape(ids, tf.int64)[0])
        return decode_step(ids, position, cache)

    def counted_padding(rows):
        ids = padded(rows)
        positions["all"] += ids.size
        positions["tokens"] += sum(map(len, rows))
        positions["batches"] += int(ids.size > 0)  # there are no prefixes
        return ids

    def steps_of(rows_per_done: int) -> int:
        run._graphs.clear()
        steps.assign(0)
        row_steps.assign(0)
        with mock.patch.object(beam_search, "_ROWS_PER_DONE", rows_per_done):
            run.translate(lines, **options)
        return int(row_steps)

    with mock.patch.object(run.model, "decode_step", counted_step):
        computed, count = steps_of(beam_search._ROWS_PER_DONE), int(steps)
        # A sentence leaves at once, and so each step that is computed is needed.
        needed = steps_of(10**6)
        with mock.patch.object(translator, "padded", counted_padding):
            run.translate(lines, **options)
    report = {
        "wasted_row_steps": 1 - needed / computed,
        "wasted_source_positions": 1 - positions["tokens"] / positions["all"],
        "row_steps": computed,
    }
    batches = positions["batches"]
    of_one = products.decoding(
        run.model.hparams,
        run.model.softmax_embedding.table.shape[0],
        batch=round(computed / count),
        source=round(positions["all"] / len(lines)),
        beam=args.beam_size,
        steps=round(count / batches),
    )
    return report, [dataclasses.replace(p, count=p.count * batches) for p in of_one]


if __name__ == "__main__":
    main()
