"""The verb that draws a model's attention weights: `attention`."""

import argparse
from typing import Any

from t2t_keras.cli.checks import require_writable
from t2t_keras.cli.verb import Verb, add_run, table, utf8
from t2t_keras.data.files import open_lines
from t2t_keras.training.runs import require_run


def _attention_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--source", type=utf8, required=True, metavar="TEXT", help="a sentence"
    )
    parser.add_argument(
        "--target",
        type=utf8,
        metavar="TEXT",
        help="its translation (default: the model's own)",
    )
    parser.add_argument(
        "--write", required=True, metavar="FILE", help="the HTML page to write"
    )


def _check_attention(args: argparse.Namespace) -> None:
    require_run(args.output_dir)
    require_writable("write", args.write)


def _attention(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.decoding.scoring import sentence_attention
    from t2t_keras.training.run_dir import RunDirectory

    from .attention_page import attention_page, pictures

    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    found = sentence_attention(translator, args.source, args.target)
    with open_lines(args.write) as file:
        file.write(attention_page(args.source, pictures(*found)))
    layers, heads, *_ = found.cross.shape
    shape = {"layers": layers, "heads": heads}
    return {
        "write": args.write,
        **shape,
        "source": found.source,
        "target": found.target,
    }


VERB = Verb(
    "draw a model's attention weights for a sentence",
    _attention_flags,
    _attention,
    lambda result: table(
        {k: " ".join(v) if isinstance(v, list) else v for k, v in result.items()}
    ),
    uses_tensorflow=True,
    check=_check_attention,
)
