"""The verbs that run a trained model on text: `translate`, `score`."""

import argparse
import contextlib
import itertools
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, TextIO

from t2t_keras.cli.checks import require_readable, require_run, require_writable
from t2t_keras.cli.decoding import (
    Advance,
    Output,
    add_decoding_flags,
    check_decoder,
    open_decoder,
)
from t2t_keras.cli.lines import STDOUT, count_lines, open_output, read_lines
from t2t_keras.cli.verb import (
    Verb,
    add_checkpoint,
    add_usr_dir,
    table,
)
from t2t_keras.data.files import write_lines
from t2t_keras.errors import UserError

_LINES_AT_ONCE = 2000  # read, sorted by length and decoded together


def _translate_flags(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--output_dir", help="a run directory")
    model.add_argument("--export_dir", help="a model that `t2t export` wrote")
    add_checkpoint(parser)
    add_usr_dir(parser)
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
    add_decoding_flags(parser, sampling=True)


def _check_translate(args: argparse.Namespace) -> None:
    if args.input is None and sys.stdin is None:
        raise UserError("standard input is closed; give --input FILE")
    check_decoder(args)
    require_readable(args.input)
    require_writable("output", args.output)


def _translate(args: argparse.Namespace) -> dict[str, Any]:
    decode = open_decoder(args)
    numbered = args.scores or (args.n_best or 1) > 1
    start, count = time.monotonic(), 0
    repaired: list[bool | None] = []  # of the best outputs
    with open_output(args.output) as output, _progress(args) as advance:
        for lines in _chunks(args.input):
            outputs = decode(lines, count, advance)
            for number, hypotheses in enumerate(outputs, count + 1):
                _write(output, number, hypotheses, numbered)
                repaired.append(hypotheses[0].is_repaired)
            output.flush()
            count += len(lines)
    result = {"sentences": count, "seconds": round(time.monotonic() - start, 2)}
    if repaired and None not in repaired:
        result["repaired"] = repaired.count(True) / count
    return result


def _progress(
    args: argparse.Namespace,
) -> AbstractContextManager[Advance | None]:
    """Shows progress, unless the output itself appears on the terminal."""
    is_interactive = args.input is None and sys.stdin.isatty()
    if is_interactive or (args.output is None and os.isatty(STDOUT)):
        return contextlib.nullcontext()
    from t2t_keras.data.progress import progress

    return progress("translate", "sentences", count_lines(args.input))


def _chunks(path: str | None) -> Iterator[list[str]]:
    """Yields lines to be decoded together; from a terminal, one by one."""
    if path is None and sys.stdin.isatty():
        print("One sentence per line; Ctrl-D ends.", file=sys.stderr)
        while True:
            print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                print(file=sys.stderr)
                return
            yield [line.removesuffix("\n")]
    lines = read_lines(path)
    while chunk := list(itertools.islice(lines, _LINES_AT_ONCE)):
        yield chunk


def _write(
    output: TextIO, number: int, hypotheses: list[Output], numbered: bool
) -> None:
    """Writes the outputs for one sentence."""
    if not numbered:
        output.write(f"{hypotheses[0].text}\n")
        return
    for rank, (score, text, _) in enumerate(hypotheses, 1):
        output.write(f"{number}\t{rank}\t{score:.6f}\t{text}\n")


def _show_translate(result: dict[str, Any]) -> str:
    if result.get("repaired"):
        share = f"{result['repaired']:.1%} of the outputs"
        print(f"{share} were malformed and were repaired", file=sys.stderr)
    return ""


def _score_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output_dir", required=True, help="a run directory")
    add_checkpoint(parser)
    add_usr_dir(parser)
    parser.add_argument("--source", required=True, metavar="FILE")
    parser.add_argument("--target", required=True, metavar="FILE")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write `log-probability TAB tokens` for each line",
    )


def _check_score(args: argparse.Namespace) -> None:
    require_run(args.output_dir)
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
    from t2t_keras.runs.run_dir import RunDirectory

    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
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
