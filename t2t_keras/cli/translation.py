"""The verbs that run a trained model on text: `translate`, `score`."""

import argparse
import contextlib
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from t2t_keras import load
from t2t_keras.cli.checks import require_readable, require_writable
from t2t_keras.cli.decoding import add_decoding_flags, check_decoder
from t2t_keras.cli.lines import STDOUT, count_lines, open_output, read_lines
from t2t_keras.cli.verb import (
    MAX_SEED,
    Verb,
    add_checkpoint,
    add_run,
    given_options,
    table,
)
from t2t_keras.data.files import write_lines
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.runs import require_run

_LINES_AT_ONCE = 2000  # read, sorted by length and decoded together


def _translate_flags(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--output_dir", help="a run directory")
    model.add_argument("--export_dir", help="a model that `t2t export` wrote")
    add_checkpoint(parser)
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
    from t2t_keras.decoding.translator import Translator

    translator = load(args.output_dir or args.export_dir, args.checkpoint)
    options = given_options(args, DecodingOptions)
    first_seed = options.pop("seed", 0)
    translator.choose(**options)  # raises before any text is read
    repairs = (
        isinstance(translator, Translator)
        and translator.problem.text_form.repairs_outputs
    )
    numbered = args.scores or (args.n_best or 1) > 1
    start, count, repaired = time.monotonic(), 0, 0
    n_best: Callable[..., Sequence[Sequence[Any]]] = translator.n_best
    with open_output(args.output) as output, _progress(args) as advance:
        for lines in _chunks(args.input):
            if args.sampling:
                options["seed"] = (first_seed + count) % MAX_SEED
            outputs = n_best(lines, before=count, advance=advance, **options)
            for number, hypotheses in enumerate(outputs, count + 1):
                repaired += hypotheses[0].is_repaired
                if not numbered:
                    output.write(f"{hypotheses[0].text}\n")
                    continue
                for rank, it in enumerate(hypotheses, 1):
                    output.write(f"{number}\t{rank}\t{it.score:.6f}\t{it.text}\n")
            output.flush()
            count += len(lines)
    result = {"sentences": count, "seconds": round(time.monotonic() - start, 2)}
    if count and repairs:
        result["repaired"] = repaired / count
    return result


def _progress(
    args: argparse.Namespace,
) -> AbstractContextManager[Callable[[int], None] | None]:
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


def _show_translate(result: dict[str, Any]) -> str:
    if result.get("repaired"):
        share = f"{result['repaired']:.1%} of the outputs"
        print(f"{share} were malformed and were repaired", file=sys.stderr)
    return ""


def _score_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
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
    translator = load(args.output_dir, args.checkpoint)
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
