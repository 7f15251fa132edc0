"""`t2t attention`: all attention weights of a model for one sentence."""

import argparse
from typing import Any

from t2t_keras.cli.command import Command, add_run, quoted, utf8
from t2t_keras.cli.lines import require_outputs
from t2t_keras.console import say_page, table
from t2t_keras.files.atomic import open_lines
from t2t_keras.run.config import require_run


def _attention_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--source", type=utf8, required=True, metavar="TEXT", help="the source sentence"
    )
    parser.add_argument(
        "--target",
        type=utf8,
        metavar="TEXT",
        help="its translation (default: the model's translation)",
    )
    parser.add_argument(
        "--page", required=True, metavar="FILE", help="write the HTML page here"
    )


def _check_attention(args: argparse.Namespace) -> None:
    require_run(args.output_dir)
    require_outputs(args, {"page": [args.page]})


def _attention(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.run.directory import RunDirectory

    from .attention_page import attention_page
    from .sentence_attention import sentence_attention

    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    attention = sentence_attention(translator, args.source, args.target)
    with open_lines(args.page) as file:
        file.write(attention_page(attention))
    say_page(args.page)
    num_layers, num_heads, *_ = attention.cross.shape
    return {
        "page": args.page,
        "layers": num_layers,
        "heads": num_heads,
        "source": attention.source,
        "target": attention.target,
    }


def _show_attention(result: dict[str, Any]) -> str:
    rows = {name: result[name] for name in ("layers", "heads")}
    for side in ("source", "target"):
        rows[side] = " ".join(result[side])
    return table(rows)


COMMAND = Command(
    "draw a model's attention weights for a sentence",
    _attention_flags,
    _attention,
    _show_attention,
    uses_tensorflow=True,
    check=_check_attention,
    waiting="computing the attention",
    next_command=lambda args: f"t2t page {quoted(args.output_dir)}",
    group="judging a model",
)
