"""The command that takes over a model of another program: `import`."""

import argparse
from pathlib import Path
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.checks import (
    require_directory,
    require_lines,
    require_readable,
)
from t2t_keras.cli.command import Command, add_usr_dir, not_negative, positive
from t2t_keras.cli.lines import read_lines
from t2t_keras.errors import UserError

_PROGRAMS = ("t2t", "marian", "hf-marian")


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="of tensor2tensor (1.4 or later) a training directory, or a checkpoint, "
        ".../model.ckpt-350855; of Marian the directory with decoder.yml, or such a "
        "file; of Marian in Hugging Face transformers the directory with "
        "model.safetensors",
    )
    parser.add_argument("--output_dir", required=True, help="the run directory to make")
    parser.add_argument(
        "--from",
        dest="program",
        choices=_PROGRAMS,
        help="whose model it is (default: what the files in SOURCE tell)",
    )
    parser.add_argument(
        "--problem",
        help="the problem to use the model for, a name of `t2t list` (default: the one "
        "that the training directory's flags name, or translate_text)",
    )
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="what `t2t datagen` wrote with the same vocabularies, for `t2t evaluate`",
    )
    parser.add_argument(
        "--verify",
        nargs=2,
        metavar=("SOURCES", "OUTPUTS"),
        help="translate the lines of a file, and count how many outputs are those that "
        "the other program wrote into another",
    )
    add_usr_dir(parser)
    t2t = parser.add_argument_group("of tensor2tensor")
    t2t.add_argument(
        "--vocab",
        nargs="+",
        default=(),
        metavar="FILE",
        help="the vocabulary of both languages, or those of source and target "
        "(default: the vocab.* of the model's size in SOURCE, or in the data directory "
        "that the training directory's flags name)",
    )
    t2t.add_argument(
        "--hparams_json",
        metavar="FILE",
        help="its hyper-parameters (default: hparams.json beside the checkpoint)",
    )
    t2t.add_argument(
        "--target_space_id",
        type=not_negative,
        metavar="ID",
        help="tensor2tensor's target_space_id (default: that with which the checkpoint "
        "was trained)",
    )
    t2t.add_argument(
        "--last",
        type=positive,
        metavar="N",
        help="take the newest N checkpoints, for `t2t average` (default: 1)",
    )


def _program(args: argparse.Namespace) -> str:
    """Returns whose model it is, of `_PROGRAMS`."""
    source = Path(args.source)
    if not source.exists() and not source.with_name(f"{source.name}.index").exists():
        raise UserError(f"there is no {source}")
    if args.program:
        return args.program
    if not source.is_dir():
        return "marian" if source.suffix in (".yml", ".npz") else "t2t"
    signs = {
        "t2t": ("*.index", "hparams.json"),
        "hf-marian": ("model.safetensors", "config.json", "pytorch_model.bin"),
        "marian": ("*decoder.yml", "*.npz"),
    }
    for program, patterns in signs.items():
        if any(any(source.glob(pattern)) for pattern in patterns):
            return program
    raise UserError(
        f"{source} has no model: neither a checkpoint of tensor2tensor (*.index), nor "
        "Marian's decoder.yml, nor the config.json of Hugging Face transformers"
    )


def _check(args: argparse.Namespace) -> None:
    if len(args.vocab) > 2:
        raise UserError(f"--vocab takes one file or two, not {len(args.vocab)}")
    if args.problem is not None:
        registry.problem(args.problem)
    for path in (*args.vocab, *(args.verify or ())):
        require_readable(path)
    require_directory("data_dir", args.data_dir)
    if (program := _program(args)) == "t2t":
        return
    for flag in ("vocab", "hparams_json", "target_space_id", "last"):
        if getattr(args, flag) not in (None, ()):
            raise UserError(
                f"--{flag} is for tensor2tensor's models, and this one is of {program}"
            )


def _import(args: argparse.Namespace) -> dict[str, Any]:
    from .imported_run import verify

    if args.verify:
        sources, outputs = (list(read_lines(path)) for path in args.verify)
        require_lines({args.verify[0]: sources}, args.verify[1], outputs)
    program = _program(args)
    of_any = {"problem": args.problem, "data_dir": args.data_dir}
    of_any["usr_dir"] = args.usr_dir
    if program == "t2t":
        from .t2t_run import import_t2t_run

        imported = import_t2t_run(
            args.source,
            args.output_dir,
            vocab=args.vocab,
            hparams_json=args.hparams_json,
            target_space_id=args.target_space_id,
            last=args.last or 1,
            **of_any,
        )
    else:
        from .marian_model import import_marian_run

        imported = import_marian_run(
            args.source, args.output_dir, program=program, **of_any
        )
    result: dict[str, Any] = {
        "output_dir": args.output_dir,
        "from": program,
        "took": imported.took,
        "left_out": imported.left_out,
        "check": imported.check,
    }
    if args.verify:
        result["verified"] = verify(imported, sources, outputs)
    return result


def _show(result: dict[str, Any]) -> str:
    lines = [f"{result['output_dir']} is a run directory of a {result['from']} model."]
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


COMMAND = Command(
    "make a run directory of a model of tensor2tensor or Marian",
    _flags,
    _import,
    _show,
    uses_tensorflow=True,
    check=_check,
)
