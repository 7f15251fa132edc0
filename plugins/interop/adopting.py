"""`t2t adopt`: makes a data directory of tensor2tensor's TFRecords."""

import argparse
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.command import Command, add_usr_dir
from t2t_keras.console import table


def _adopt_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="DIR/NAME",
        help="the files DIR/NAME-train-* ... that tensor2tensor wrote",
    )
    parser.add_argument("--problem", required=True, help="a name of `t2t list`")
    parser.add_argument("--data_dir", required=True, help="data directory to write")
    parser.add_argument(
        "--vocab", metavar="FILE", help="the vocabulary (default: the only DIR/vocab.*)"
    )
    add_usr_dir(parser)


def _adopt(args: argparse.Namespace) -> dict[str, Any]:
    from .t2t.data import adopt

    problem = registry.problem(args.problem)
    manifest = adopt(problem, args.source, args.data_dir, args.vocab)
    return {
        "examples": dict(manifest.examples),
        "vocab_size": manifest.vocab_sizes["target"],
    }


def _show_adopt(result: dict[str, Any]) -> str:
    return table(result["examples"] | {"vocabulary": result["vocab_size"]})


COMMAND = Command(
    "use data that tensor2tensor wrote, without a conversion",
    _adopt_flags,
    _adopt,
    _show_adopt,
    uses_tensorflow=True,
    waiting="reading the data",
    next_command=lambda args: (
        f"t2t train --problem {args.problem} --data_dir {args.data_dir} "
        "--hparams_set SET --output_dir RUN"
    ),
    group="data and training",
)
