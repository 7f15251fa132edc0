"""The verbs that run a trained model on text: `translate`, `score`."""

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from t2t_keras import load
from t2t_keras.cli.checks import require_readable, require_writable
from t2t_keras.cli.decoding import add_decoding_flags, check_decoder
from t2t_keras.cli.lines import (
    STDOUT,
    count_lines,
    open_output,
    read_lines,
)
from t2t_keras.cli.verb import (
    MAX_SEED,
    Verb,
    add_ensemble,
    add_model,
    add_run,
    given_options,
    table,
)
from t2t_keras.data.files import is_special, sha256, write_lines
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.runs import require_run

# What is read, sorted by length and decoded together, and then written.
_LINES_AT_ONCE = 2000
_CHARACTERS_AT_ONCE = 4_000_000


def _translate_flags(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_ensemble(parser)
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="one sentence per line (default: standard input)",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="one line per sentence (default: standard output)",
    )
    parser.add_argument(
        "--scores",
        action="store_true",
        help="write lines of `line number TAB rank TAB score TAB text`, both numbers "
        "from 1; --n_best above 1 implies this",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the FILE.incomplete that a killed process left; without one, "
        "begin anew",
    )
    add_decoding_flags(parser, sampling=True)


def _check_translate(args: argparse.Namespace) -> None:
    if args.input is None and sys.stdin is None:
        raise UserError("standard input is closed; give --input FILE")
    check_decoder(args)
    require_readable(args.input)
    require_writable("output", args.output)
    if args.resume and (args.output is None or is_special(args.output)):
        raise UserError("--resume needs --output FILE; only a file can be resumed")


def _translate(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.decoding.translator import Translator

    checkpoint, model = _model(args)
    if args.ensemble:
        checkpoint = args.checkpoint  # each run has its own files
    translator = load(args.output_dir or args.export_dir, checkpoint, args.ensemble)
    options = given_options(args, DecodingOptions)
    numbered = args.scores or (args.n_best or 1) > 1
    settings = {"model": model, "scores": numbered, **options}
    if args.ensemble:
        settings["ensemble"] = args.ensemble
    settings.pop("batch_tokens", None)  # it only changes how results are rounded
    first_seed = options.pop("seed", 0)
    translator.choose(**options)  # raises before any text is read
    repairs = (
        isinstance(translator, Translator)
        and translator.problem.text_form.repairs_outputs
    )
    start = time.monotonic()
    n_best: Callable[..., Sequence[Sequence[Any]]] = translator.n_best
    with open_output(args.output, settings, args.resume) as output:
        count, repaired = (output.done.get(x, 0) for x in ("sentences", "repaired"))
        with _progress(args, count) as advance:
            for lines in _chunks(output.unread(_lines(args)), _is_interactive(args)):
                if args.sampling:
                    options["seed"] = (first_seed + count) % MAX_SEED
                outputs = n_best(lines, before=count, advance=advance, **options)
                for number, hypotheses in enumerate(outputs, count + 1):
                    repaired += hypotheses[0].is_repaired
                    if not numbered:
                        output.file.write(f"{hypotheses[0].text}\n")
                        continue
                    for rank, it in enumerate(hypotheses, 1):
                        row = f"{number}\t{rank}\t{it.score:.6f}\t{it.text}\n"
                        output.file.write(row)
                count += len(lines)
                output.save(sentences=count, repaired=repaired)
    result = {"sentences": count, "seconds": round(time.monotonic() - start, 2)}
    if count and repairs:
        result["repaired"] = repaired / count
    return result


def _model(args: argparse.Namespace) -> tuple[str | None, str]:
    """Returns the checkpoint to load, and a checksum of the model.

    The index of a checkpoint has the checksums of all weights.
    """
    if args.export_dir:
        export = Path(args.export_dir)
        files = (export / "saved_model.pb", export / "variables" / "variables.index")
        return args.checkpoint, "-".join(sha256(file)[:12] for file in files)
    from t2t_keras.runs.run_dir import RunDirectory

    checkpoints = RunDirectory(args.output_dir).checkpoints
    is_average = args.checkpoint == "ema"
    path = checkpoints.find("latest" if is_average else args.checkpoint)
    checksum = sha256(Path(f"{path}.index"))[:12]
    return ("ema", f"ema-{checksum}") if is_average else (str(path), checksum)


def _is_interactive(args: argparse.Namespace) -> bool:
    """Returns whether the input comes from a terminal."""
    return args.input is None and sys.stdin.isatty()


def _progress(
    args: argparse.Namespace, done: int
) -> AbstractContextManager[Callable[[int], None] | None]:
    """Shows progress, unless the output itself appears on the terminal."""
    if _is_interactive(args) or (args.output is None and os.isatty(STDOUT)):
        return contextlib.nullcontext()
    from t2t_keras.data.progress import progress

    return progress("translate", "sentences", count_lines(args.input), done)


def _lines(args: argparse.Namespace) -> Iterator[str]:
    """Yields the lines of the input; a terminal is asked for each of them."""
    if not _is_interactive(args):
        yield from read_lines(args.input)
        return
    print("One sentence per line; Ctrl-D ends.", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line.removesuffix("\n")


def _chunks(lines: Iterator[str], one_by_one: bool) -> Iterator[list[str]]:
    """Yields lines to be decoded together; it never reads further than these."""
    chunk: list[str] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += len(line)
        is_full = len(chunk) == _LINES_AT_ONCE or characters >= _CHARACTERS_AT_ONCE
        if is_full or one_by_one:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _show_translate(result: dict[str, Any]) -> str:
    if result.get("repaired"):
        share = f"{result['repaired']:.1%} of the outputs"
        print(f"{share} were malformed and were repaired", file=sys.stderr)
    return ""


def _score_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_ensemble(parser)
    parser.add_argument("--source", required=True, metavar="FILE")
    parser.add_argument("--target", required=True, metavar="FILE")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write `log-probability TAB tokens` for each line",
    )


def _check_score(args: argparse.Namespace) -> None:
    for run in (args.output_dir, *args.ensemble):
        require_run(run)
    require_readable(args.source)
    require_readable(args.target)
    require_writable("output", args.output)


def _score(args: argparse.Namespace) -> dict[str, Any]:
    sources, targets = list(read_lines(args.source)), list(read_lines(args.target))
    if len(sources) != len(targets):
        raise UserError(
            f"{args.source} has {len(sources)} lines and {args.target} "
            f"{len(targets)}; they must be pairs"
        )
    if not sources:
        raise UserError(f"{args.source} is empty")
    translator = load(args.output_dir, args.checkpoint, args.ensemble)
    scores = translator.score(sources, targets)
    if args.output:
        write_lines(args.output, [f"{s.log_prob:.6f}\t{s.tokens}" for s in scores])
    log_prob = math.fsum(score.log_prob for score in scores)
    tokens = sum(score.tokens for score in scores)
    return {
        "log_prob": log_prob,
        "tokens": tokens,
        "perplexity": math.exp(min(-log_prob / tokens, 700.0)),
    }


VERBS = {
    "translate": Verb(
        "translate text with a trained or an exported model",
        _translate_flags,
        _translate,
        _show_translate,
        uses_tensorflow=True,
        check=_check_translate,
    ),
    "score": Verb(
        "compute the log-probabilities of given translations",
        _score_flags,
        _score,
        table,
        uses_tensorflow=True,
        check=_check_score,
    ),
}
