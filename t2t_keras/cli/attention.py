"""The verb that draws a model's attention weights: `attention`."""

import argparse
from typing import Any

from t2t_keras.cli.checks import require_writable
from t2t_keras.cli.verb import Verb, add_run, table
from t2t_keras.data.files import open_lines
from t2t_keras.runs import require_run


def _attention_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--source", required=True, metavar="TEXT", help="a sentence")
    parser.add_argument(
        "--target", metavar="TEXT", help="its translation (default: the model's own)"
    )
    parser.add_argument(
        "--write", required=True, metavar="FILE", help="the HTML page to write"
    )


def _check_attention(args: argparse.Namespace) -> None:
    require_run(args.output_dir)
    require_writable("write", args.write)


def _attention(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.analysis.attention_page import Picture, attention_page
    from t2t_keras.decoding.sentence_attention import sentence_attention
    from t2t_keras.runs.run_dir import RunDirectory

    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    found = sentence_attention(translator, args.source, args.target)
    source, target = found.source, found.target
    before = ["(start)", *target[:-1]]
    pictures = [
        Picture("Encoder: the source to itself", source, source, found.encoder),
        Picture("Decoder: the target to itself", target, before, found.decoder),
        Picture("Decoder: the target to the source", target, source, found.cross),
    ]
    with open_lines(args.write) as file:
        file.write(attention_page(args.source, pictures))
    layers, heads, *_ = found.cross.shape
    shape = {"layers": layers, "heads": heads}
    return {"write": args.write, **shape, "source": source, "target": target}


VERBS = {
    "attention": Verb(
        "draw a model's attention weights for a sentence",
        _attention_flags,
        _attention,
        lambda result: table(
            {k: " ".join(v) if isinstance(v, list) else v for k, v in result.items()}
        ),
        uses_tensorflow=True,
        check=_check_attention,
    ),
}
