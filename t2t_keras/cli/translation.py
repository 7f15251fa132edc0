"""The verbs that run a trained model on text: `translate`, `score`."""

import argparse
import itertools
import math
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

from t2t_keras.cli.decoding import Output, add_decoding_flags, add_raw, open_decoder
from t2t_keras.cli.lines import open_output, read_lines
from t2t_keras.cli.verb import (
    Verb,
    add_checkpoint,
    add_usr_dir,
    positive,
    seed,
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
        "--input", metavar="FILE", help="one sentence a line (default: standard input)"
    )
    parser.add_argument(
        "--output", metavar="FILE", help="one line for each (default: standard output)"
    )
    parser.add_argument(
        "--n_best",
        type=positive,
        metavar="N",
        help="N outputs a sentence, best first, as lines of `line number TAB rank TAB "
        "score TAB text`, both numbers from 1",
    )
    parser.add_argument(
        "--scores", action="store_true", help="the lines of --n_best also for N = 1"
    )
    add_raw(parser)
    add_decoding_flags(parser)
    sampling = parser.add_argument_group("sampling, in place of beam search")
    sampling.add_argument("--sample", action="store_true", help="draw at random")
    sampling.add_argument("--temperature", type=float, help="divides the logits")
    sampling.add_argument("--top_k", type=positive, help="among the K likeliest pieces")
    sampling.add_argument(
        "--top_p", type=float, help="among the likeliest of this probability together"
    )
    sampling.add_argument("--seed", type=seed, help="of the draws")


def _translate(args: argparse.Namespace) -> dict[str, Any]:
    decode = open_decoder(args)
    numbered = args.scores or (args.n_best or 1) > 1
    start, count = time.monotonic(), 0
    repaired: list[bool | None] = []  # of the best outputs
    with open_output(args.output) as output:
        for lines in _chunks(args.input):
            for number, hypotheses in enumerate(decode(lines, count), count + 1):
                _write(output, number, hypotheses, numbered)
                repaired.append(hypotheses[0].is_repaired)
            output.flush()
            count += len(lines)
    result = {"sentences": count, "seconds": round(time.monotonic() - start, 2)}
    if repaired and None not in repaired:
        result["repaired"] = sum(repaired) / count
    return result


def _chunks(path: str | None) -> Iterator[list[str]]:
    """Yields lines as they are to be decoded together; one by one from a person."""
    if path is None and sys.stdin.isatty():
        print("One sentence a line; Ctrl-D ends.", file=sys.stderr)
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
    """Writes one sentence's outputs."""
    if not numbered:
        output.write(f"{hypotheses[0].text}\n")
        return
    for rank, (score, text, _) in enumerate(hypotheses, 1):
        output.write(f"{number}\t{rank}\t{score:.6f}\t{text}\n")


def _show_translate(result: dict[str, Any]) -> str:
    message = f"{result['sentences']} sentences in {result['seconds']:.1f} s"
    if result.get("repaired"):
        message += f"; {result['repaired']:.1%} of the outputs were no trees over the "
        message += "words and were repaired"
    print(message, file=sys.stderr)
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
        help="writes `log-probability TAB tokens` for each line",
    )


def _score(args: argparse.Namespace) -> dict[str, Any]:
    sources, targets = list(read_lines(args.source)), list(read_lines(args.target))
    if len(sources) != len(targets):
        raise UserError(
            f"{args.source} has {len(sources)} lines and {args.target} "
            f"{len(targets)}; they must be pairs"
        )
    if not sources:
        raise UserError(f"{args.source} is empty")
    from t2t_keras.training.run_dir import RunDirectory

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
        "translate text by a trained or an exported model",
        _translate_flags,
        _translate,
        _show_translate,
        uses_tensorflow=True,
    ),
    "score": Verb(
        "tell how probable a model finds given translations",
        _score_flags,
        _score,
        table,
        uses_tensorflow=True,
    ),
}
