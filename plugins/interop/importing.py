"""`t2t import`: makes a run directory of another program's model."""

import dataclasses
from pathlib import Path
from typing import Any, Literal, get_args

from t2t_keras import registry
from t2t_keras.cli.command import (
    REQUIRED,
    Command,
    CommandResult,
    FlagGroup,
    UsrDirFlags,
    quoted,
)
from t2t_keras.cli.lines import (
    read_lines,
    require_directory,
    require_lines,
    require_readable,
)
from t2t_keras.errors import UserError, quantity
from t2t_keras.exporting.formats import format_of
from t2t_keras.options import option
from t2t_keras.run.config import checkpoint_of, has_checkpoint, is_run

from .model_sources import is_on_disk, model_files

Program = Literal["t2t", "marian", "hf-marian"]
_T2T = FlagGroup("for models of tensor2tensor", is_further=True)


@dataclasses.dataclass(kw_only=True)
class Import(UsrDirFlags, Command):
    """Makes a run directory of another program's model."""

    summary = "make a run directory from another program's model"
    heading = "data and training"
    waiting = "converting the model"

    source: str = option(
        REQUIRED,
        "tensor2tensor (1.4 or later): a training directory, or a checkpoint such as "
        ".../model.ckpt-350855; Marian: the directory with decoder.yml, or that file, "
        "or a ZIP file with it, or its address; Hugging Face transformers: the "
        "directory with config.json, or OWNER/NAME[@REVISION] on the Hub",
        metavar="SOURCE",
        positional=True,
        is_text=True,  # it may be an address
    )
    output_dir: str = option(REQUIRED, "the run directory to write", metavar="RUN")
    program: Program | None = option(
        None,
        "the program that wrote the model (default: detected from the files in SOURCE)",
        names=("--from",),
    )
    problem: str | None = option(
        None,
        "the problem to use the model for, a name of `t2t list` (default: the problem "
        "in the training directory's flags, or translate_text)",
        metavar="NAME",
    )
    data_dir: str | None = option(
        None,
        "data that `t2t datagen` wrote with the same vocabularies, for `t2t evaluate`",
        metavar="DIR",
    )
    verify: tuple[str, ...] = option(
        (),
        "translate the lines of SOURCES, and count the outputs that equal the other "
        "program's, which are the lines of OUTPUTS",
        metavar="SOURCES OUTPUTS",
    )
    vocab: tuple[str, ...] = option(
        (),
        "the vocabulary of both languages, or one for sources and one for targets "
        "(default: the vocab.* of the model's size in SOURCE, or in the data directory "
        "that the training directory's flags name)",
        metavar="FILE ...",
        group=_T2T,
    )
    hparams_json: str | None = option(
        None,
        "its hyper-parameters (default: hparams.json beside the checkpoint)",
        metavar="FILE",
        group=_T2T,
    )
    target_space_id: int | None = option(
        None,
        "tensor2tensor's target_space_id (default: the one that the checkpoint was "
        "trained with)",
        ge=0,
        metavar="ID",
        group=_T2T,
    )
    last: int | None = option(
        None,
        "import the newest N checkpoints, for `t2t average` (default: 1)",
        ge=1,
        group=_T2T,
    )

    def needs_tensorflow(self) -> bool:
        """Needs it to write a checkpoint."""
        return True

    def check(self) -> None:
        """Refuses files that are not there, and flags of another program."""
        if len(self.vocab) > 2:
            raise UserError(f"--vocab takes one or two files, not {len(self.vocab)}")
        if len(self.verify) not in (0, 2):
            raise UserError(
                f"--verify takes two files, SOURCES OUTPUTS, not {len(self.verify)}"
            )
        if self.problem is not None:
            registry.problem(self.problem)
        for path in (*self.vocab, *self.verify):
            require_readable(path)
        require_directory("data_dir", self.data_dir)
        if is_on_disk(self.source):
            self._program_of(Path(self.source))

    def _program_of(self, source: Path) -> Program:
        """Returns the program that wrote a model.

        Raises:
            UserError: there is no model, or flags do not suit its program.
        """
        _refuse_exports(source)
        program = self.program or _detected_program(source)
        for flag in ("vocab", "hparams_json", "target_space_id", "last"):
            if program != "t2t" and getattr(self, flag) not in (None, ()):
                raise UserError(
                    f"--{flag} is for tensor2tensor's models, but this is a {program} "
                    "model"
                )
        return program

    def run(self) -> CommandResult:
        """Makes the run, and returns what it took and left out."""
        from .imported_run import verify

        if self.verify:
            sources_path, outputs_path = self.verify
            sources = list(read_lines(sources_path))
            outputs = list(read_lines(outputs_path))
            require_lines({sources_path: sources}, outputs_path, outputs)
        shared: dict[str, Any] = {
            name: getattr(self, name) for name in ("problem", "data_dir", "usr_dir")
        }
        with model_files(self.source) as model:
            program = self._program_of(model.path)
            if program != "t2t":
                from .marian.run import import_marian_run

                imported = import_marian_run(
                    model, self.output_dir, program=program, **shared
                )
            elif model.origin:
                raise UserError(
                    f"{self.source} has a model of tensor2tensor; unpack it, and give "
                    "its training directory"
                )
            else:
                from .t2t.run import import_t2t_run

                imported = import_t2t_run(
                    self.source,
                    self.output_dir,
                    vocab=self.vocab,
                    hparams_json=self.hparams_json,
                    target_space_id=self.target_space_id,
                    num_checkpoints=self.last or 1,
                    **shared,
                )
        result: dict[str, Any] = {
            "output_dir": self.output_dir,
            "from": program,
            "took": imported.took,
            "left_out": imported.left_out,
            "check": imported.check,
        }
        if imported.run.config.origin:
            result["origin"] = imported.run.config.origin
        if self.verify:
            result["verified"] = verify(imported, sources, outputs)
        return result

    def show(self, result: CommandResult) -> str:
        """Lists what was taken, left out and verified."""
        lines = [
            f"{result['output_dir']} is now a run directory with a {result['from']} "
            "model."
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
                lines += [
                    f"            line {difference['line']}: {difference['output']}"
                ]
                lines += [f"            given: {difference['given']}"]
        return "\n".join(lines)

    def next_command(self) -> str:
        """Returns the command that translates with the model."""
        return f"t2t translate {quoted(self.output_dir)}"


def _detected_program(source: Path) -> Program:
    """Returns the program that wrote a model, by its files.

    Raises:
        UserError: there are no files of such a program.
    """
    if source.suffix in (".yml", ".npz"):
        return "marian"
    if not source.is_dir() and has_checkpoint(checkpoint_of(source)):
        return "t2t"
    program_files: dict[Program, tuple[str, ...]] = {
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
    if name and name not in get_args(Program):
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


COMMAND = Import
