"""`t2t import`: makes a run directory of another program's model."""

import argparse
from pathlib import Path
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.command import (
    Command,
    add_further,
    add_usr_dir,
    not_negative,
    positive,
    quoted,
    utf8,
)
from t2t_keras.cli.lines import (
    read_lines,
    require_directory,
    require_lines,
    require_readable,
)
from t2t_keras.errors import UserError, quantity
from t2t_keras.export.formats import format_of
from t2t_keras.run.config import checkpoint_of, has_checkpoint, is_run

from .model_sources import is_on_disk, model_files

_PROGRAMS = ("t2t", "marian", "hf-marian")


def _import_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        type=utf8,  # it may be an address
        help="tensor2tensor (1.4 or later): a training directory, or a checkpoint such "
        "as .../model.ckpt-350855; Marian: the directory with decoder.yml, or that "
        "file, or a ZIP file with it, or its address; Hugging Face transformers: the "
        "directory with config.json, or OWNER/NAME[@REVISION] on the Hub",
    )
    parser.add_argument(
        "--output_dir", required=True, help="the run directory to write"
    )
    parser.add_argument(
        "--from",
        dest="program",
        choices=_PROGRAMS,
        help="the program that wrote the model (default: detected from the files in "
        "SOURCE)",
    )
    parser.add_argument(
        "--problem",
        help="the problem to use the model for, a name of `t2t list` (default: the "
        "problem in the training directory's flags, or translate_text)",
    )
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="data that `t2t datagen` wrote with the same vocabularies, for "
        "`t2t evaluate`",
    )
    parser.add_argument(
        "--verify",
        nargs=2,
        metavar=("SOURCES", "OUTPUTS"),
        help="translate the lines of SOURCES, and count the outputs that equal the "
        "other program's, which are the lines of OUTPUTS",
    )
    add_usr_dir(parser)
    _add_t2t_flags(add_further(parser, "for models of tensor2tensor"))


def _add_t2t_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--vocab",
        nargs="+",
        default=(),
        metavar="FILE",
        help="the vocabulary of both languages, or those of source and target "
        "(default: the vocab.* of the model's size in SOURCE, or in the data directory "
        "that the training directory's flags name)",
    )
    group.add_argument(
        "--hparams_json",
        metavar="FILE",
        help="its hyper-parameters (default: hparams.json beside the checkpoint)",
    )
    group.add_argument(
        "--target_space_id",
        type=not_negative,
        metavar="ID",
        help="tensor2tensor's target_space_id (default: the one that the checkpoint "
        "was trained with)",
    )
    group.add_argument(
        "--last",
        type=positive,
        metavar="N",
        help="import the newest N checkpoints, for `t2t average` (default: 1)",
    )


def _find_program(source: Path, args: argparse.Namespace) -> str:
    """Returns the program that wrote the model, one of `_PROGRAMS`.

    Raises:
        UserError: there is no model, or flags do not suit its program.
    """
    _refuse_exports(source)
    program = args.program or _program_of(source)
    if program != "t2t":
        for flag in ("vocab", "hparams_json", "target_space_id", "last"):
            if getattr(args, flag) not in (None, ()):
                raise UserError(
                    f"--{flag} is for tensor2tensor's models, but this is a {program} "
                    "model"
                )
    return program


def _program_of(source: Path) -> str:
    """Returns the program that wrote the model, from its files."""
    if source.suffix in (".yml", ".npz"):
        return "marian"
    if not source.is_dir() and has_checkpoint(checkpoint_of(source)):
        return "t2t"
    program_files = {
        "t2t": ("*.index", "hparams.json"),
        "hf-marian": ("model.safetensors", "config.json", "pytorch_model.bin"),
        "marian": ("*decoder.yml", "*.npz"),
    }
    for program, patterns in program_files.items():
        for pattern in patterns:
            if any(source.glob(pattern)):
                return program
    raise UserError(
        f"{source} has no model: neither a checkpoint of tensor2tensor (*.index), nor "
        "Marian's decoder.yml, nor the config.json of Hugging Face transformers; "
        "nothing else can be read, such as fairseq's checkpoints (*.pt)"
    )


def _refuse_exports(source: Path) -> None:
    """Refuses exports and runs, whose `config.json` looks like that of transformers.

    Raises:
        UserError: the source is one.
    """
    name = "ctranslate2" if (source / "model.bin").exists() else format_of(source)
    if name and name not in _PROGRAMS:
        raise UserError(
            f"{source} is an export ({name}), which only translates; import the model "
            "from which it was made, or use that run"
        )
    # A training directory of tensor2tensor has no config.json.
    if is_run(source) and (source / "hparams.json").exists():
        raise UserError(
            f"{source} is a run directory already; commands such as t2t translate take "
            "it as it is"
        )


def _check_import(args: argparse.Namespace) -> None:
    if len(args.vocab) > 2:
        raise UserError(f"--vocab takes one or two files, not {len(args.vocab)}")
    if args.problem is not None:
        registry.problem(args.problem)
    for path in (*args.vocab, *(args.verify or ())):
        require_readable(path)
    require_directory("data_dir", args.data_dir)
    if is_on_disk(args.source):
        _find_program(Path(args.source), args)


def _import(args: argparse.Namespace) -> dict[str, Any]:
    from .imported_run import verify

    if args.verify:
        sources_path, outputs_path = args.verify
        sources = list(read_lines(sources_path))
        outputs = list(read_lines(outputs_path))
        require_lines({sources_path: sources}, outputs_path, outputs)
    with model_files(args.source) as model:
        program = _find_program(model.path, args)
        if program == "t2t":
            from .t2t.run import import_t2t_run

            if model.origin:
                raise UserError(
                    f"{args.source} has a model of tensor2tensor; unpack it, and give "
                    "its training directory"
                )
            imported = import_t2t_run(
                args.source,
                args.output_dir,
                vocab=args.vocab,
                hparams_json=args.hparams_json,
                target_space_id=args.target_space_id,
                last=args.last or 1,
                problem=args.problem,
                data_dir=args.data_dir,
                usr_dir=args.usr_dir,
            )
        else:
            from .marian.run import import_marian_run

            imported = import_marian_run(
                model,
                args.output_dir,
                program=program,
                problem=args.problem,
                data_dir=args.data_dir,
                usr_dir=args.usr_dir,
            )
    result: dict[str, Any] = {
        "output_dir": args.output_dir,
        "from": program,
        "took": imported.took,
        "left_out": imported.left_out,
        "check": imported.check,
    }
    if imported.run.config.origin:
        result["origin"] = imported.run.config.origin
    if args.verify:
        result["verified"] = verify(imported, sources, outputs)
    return result


def _show_import(result: dict[str, Any]) -> str:
    lines = [
        f"{result['output_dir']} is now a run directory with a {result['from']} model."
    ]
    for name, value in result["took"].items():
        text = ", ".join(value) if isinstance(value, list) else value
        lines.append(f"  took      {name}: {text}")
    if "license" in result.get("origin", {}):
        lines.append(f"  licence   {result['origin']['license']}")
    lines += [f"  left out  {text}" for text in result["left_out"]]
    lines += [f"  check     {text}" for text in result["check"]]
    if verified := result.get("verified"):
        lines.append(
            f"  verified  {verified['identical']:,} of "
            f"{quantity(verified['lines'], 'outputs')} as given"
        )
        if difference := verified["first_difference"]:
            lines += [f"            line {difference['line']}: {difference['output']}"]
            lines += [f"            given: {difference['given']}"]
    return "\n".join(lines)


COMMAND = Command(
    "make a run directory of a tensor2tensor or Marian model",
    _import_flags,
    _import,
    _show_import,
    uses_tensorflow=True,
    check=_check_import,
    waiting="converting the model",
    next_command=lambda args: f"t2t translate {quoted(args.output_dir)}",
    group="data and training",
)
