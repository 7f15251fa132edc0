"""Benchmark of translating a file: sentences per second of a trained model's engines.

    python benchmarks/translate.py --output_dir runs/mine --input test.en --json
    python benchmarks/translate.py --output_dir runs/mine --input test.en \
        --engines float32 bfloat16 ctranslate2 ctranslate2:int8

The engines are `float32` and `bfloat16`, this package; `export`, its SavedModel;
`engine`, its CTranslate2 export in float32; and `ctranslate2`, CTranslate2's own
interface in any of its dtypes (the extra `[ctranslate2]`). With the environment
variables TF_NUM_INTRAOP_THREADS=1 and TF_CPU_ALLOCATOR_USE_BFC=true, this package works
as `t2t translate` does: every operation has one thread, at least two batches are
decoded at once, and freed memory is kept. The engines alternate, for `--rounds` rounds,
and translate the same lines with the same beam and, except `export`, the same number of
source tokens in a batch. Loading the model is not timed.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import workload
from rates import seconds_of

from t2t_keras import load

_DTYPES = ("float32", "bfloat16")

Translate = Callable[[list[str]], list[str]]


def main() -> None:
    """Runs the benchmark that the flags describe and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output_dir", required=True, help="a run directory")
    parser.add_argument("--input", required=True, metavar="FILE")
    parser.add_argument(
        "--sentences", type=int, help="translate only the first N lines"
    )
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument("--batch_tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--engines",
        nargs="+",
        default=["float32", "export"],
        help="float32, bfloat16, export, ctranslate2, ctranslate2:int8 ...",
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()[: args.sentences]
    with tempfile.TemporaryDirectory() as scratch:
        report = _report(args, lines, Path(scratch))
    workload.print_report(report, args.json)


def _report(
    args: argparse.Namespace, lines: list[str], scratch: Path
) -> dict[str, object]:
    """Times the engines alternately."""
    engines = {name: _engine(name, args, scratch) for name in args.engines}
    seconds: dict[str, list[float]] = defaultdict(list)
    for translate in engines.values():
        translate(lines[:50])  # traces, and compiles kernels
    for _ in range(args.rounds):
        for name, translate in engines.items():
            seconds[name].append(seconds_of(lambda: translate(lines)))  # noqa: B023
    median = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "sentences": len(lines),
        "beam_size": args.beam_size,
        "batch_tokens": args.batch_tokens,
        "sentences_per_s": {name: len(lines) / median[name] for name in engines},
        "seconds": median,
    }


def _engine(name: str, args: argparse.Namespace, scratch: Path) -> Translate:
    """Returns the function that translates lines."""
    if name in _DTYPES:
        translator = load(args.output_dir).with_compute_dtype(name)
        options = {"beam_size": args.beam_size, "batch_tokens": args.batch_tokens}
        return lambda lines: translator.translate(lines, **options)
    translator = load(args.output_dir).with_compute_dtype("float32")
    if name == "export":
        from t2t_keras.exporting.saved_model import export_saved_model

        export_saved_model(translator, scratch / "export", beam_size=args.beam_size)
        return load(scratch / "export").translate

    from t2t_keras.plugins.engines.ctranslate2_export import export_ctranslate2

    export_dir = scratch / "ctranslate2"
    if not export_dir.exists():
        export_ctranslate2(translator, export_dir, beam_size=args.beam_size)
    if name == "engine":
        return load(export_dir).translate
    return _ctranslate2(export_dir, name.partition(":")[2], args)


def _ctranslate2(
    export_dir: Path, compute_type: str, args: argparse.Namespace
) -> Translate:
    """Returns the function by which CTranslate2 translates lines on all cores."""
    import ctranslate2

    translator = load(args.output_dir)
    engine = ctranslate2.Translator(
        str(export_dir),
        compute_type=compute_type or "float32",
        inter_threads=os.cpu_count() or 1,  # faster than one batch on all cores
        intra_threads=1,
    )
    source_tokens = _vocabulary(export_dir, "source")
    ids = {token: i for i, token in enumerate(_vocabulary(export_dir, "target"))}

    def translate(lines: list[str]) -> list[str]:
        sources = []
        for source_ids in translator.source_tokenizer.encode_batch(lines):
            # CTranslate2 adds EOS.
            sources.append([source_tokens[i] for i in source_ids[:-1]])
        results = engine.translate_batch(
            sources,
            beam_size=args.beam_size,
            max_batch_size=args.batch_tokens,
            batch_type="tokens",
            length_penalty=translator.options.alpha,
        )
        outputs = []
        for result in results:
            target_ids = [ids[token] for token in result.hypotheses[0]]
            outputs.append(translator.target_tokenizer.decode(target_ids))
        return outputs

    return translate


def _vocabulary(export_dir: Path, side: str) -> list[str]:
    """Returns the tokens of one side, in the order of their ids."""
    shared = export_dir / "shared_vocabulary.json"
    path = shared if shared.exists() else export_dir / f"{side}_vocabulary.json"
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
