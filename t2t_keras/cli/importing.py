"""The verb that takes over a model of another program: `import`."""

import argparse
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.checks import (
    require_directory,
    require_lines,
    require_readable,
)
from t2t_keras.cli.lines import read_lines
from t2t_keras.cli.verb import Verb, add_usr_dir, not_negative, positive
from t2t_keras.errors import UserError


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a training directory of tensor2tensor (1.4 or later), or a checkpoint, "
        ".../model.ckpt-350855",
    )
    parser.add_argument("--output_dir", required=True, help="the run directory to make")
    parser.add_argument(
        "--problem",
        help="the problem to use the model for, a name of `t2t list` (default: the one "
        "that the training directory's flags name, or translate_text)",
    )
    parser.add_argument(
        "--vocab",
        nargs="+",
        default=(),
        metavar="FILE",
        help="the vocabulary of both languages, or those of source and target "
        "(default: the vocab.* of the model's size in SOURCE, or in the data directory "
        "that the training directory's flags name)",
    )
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="what `t2t datagen --adopt` wrote for the same vocabularies, for "
        "`t2t evaluate`",
    )
    parser.add_argument(
        "--hparams_json",
        metavar="FILE",
        help="its hyper-parameters (default: hparams.json beside the checkpoint)",
    )
    parser.add_argument(
        "--target_space_id",
        type=not_negative,
        metavar="ID",
        help="tensor2tensor's target_space_id (default: that with which the checkpoint "
        "was trained)",
    )
    parser.add_argument(
        "--last",
        type=positive,
        default=1,
        metavar="N",
        help="take the newest N checkpoints, for `t2t average` (default: 1)",
    )
    parser.add_argument(
        "--verify",
        nargs=2,
        metavar=("SOURCES", "OUTPUTS"),
        help="translate the lines of a file, and count how many outputs are those that "
        "tensor2tensor wrote into another",
    )
    add_usr_dir(parser)


def _check(args: argparse.Namespace) -> None:
    if len(args.vocab) > 2:
        raise UserError(f"--vocab takes one file or two, not {len(args.vocab)}")
    if args.problem is not None:
        registry.problem(args.problem)
    for path in (*args.vocab, *(args.verify or ())):
        require_readable(path)
    require_directory("data_dir", args.data_dir)


def _import(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.interop.t2t_run import import_t2t_run, verify

    if args.verify:
        sources, outputs = (list(read_lines(path)) for path in args.verify)
        require_lines({args.verify[0]: sources}, args.verify[1], outputs)
    imported = import_t2t_run(
        args.source,
        args.output_dir,
        problem=args.problem,
        vocab=args.vocab,
        data_dir=args.data_dir,
        hparams_json=args.hparams_json,
        target_space_id=args.target_space_id,
        last=args.last,
        usr_dir=args.usr_dir,
    )
    result: dict[str, Any] = {
        "output_dir": args.output_dir,
        "took": imported.took,
        "left_out": imported.left_out,
        "check": imported.check,
    }
    if args.verify:
        result["verified"] = verify(imported.run, sources, outputs)
    return result


def _show(result: dict[str, Any]) -> str:
    lines = [f"{result['output_dir']} is a run directory now."]
    for name, value in result["took"].items():
        text = ", ".join(value) if isinstance(value, list) else value
        lines.append(f"  took      {name}: {text}")
    lines += [f"  left out  {text}" for text in result["left_out"]]
    lines += [f"  check     {text}" for text in result["check"]]
    if verified := result.get("verified"):
        lines.append(
            f"  verified  {verified['identical']} of {verified['lines']} outputs are "
            "the given ones"
        )
        if first := verified["first_difference"]:
            lines += [f"            line {first['line']}: {first['output']}"]
            lines += [f"            given: {first['given']}"]
    return "\n".join(lines)


VERBS = {
    "import": Verb(
        "make a run directory of a tensor2tensor model",
        _flags,
        _import,
        _show,
        uses_tensorflow=True,
        check=_check,
    ),
}
