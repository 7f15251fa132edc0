"""The class of commands, and the flags that several of them share.

A command is a dataclass: its fields are its flags, its methods do the work. A field
is an `option` with a help text; further metadata says how it is written:

    names: how it is written, with hyphens (default: --NAME).
    metavar: the word for its value in the help.
    group: the `FlagGroup` below which the help lists it.
    positional: whether its value may stand without the flag.
    aliases: other ways to write it, with hyphens.
    parse: converts the text of the value; raises UserError.
    further_help: returns the end of the help, for which it may import plugins.
    is_text: whether the value may be any text, even an empty one.
    remainder: whether it takes all words after the flags.

Fields of one type are shared by inheritance: `class Export(RunFlags, Command)`.
"""

import contextlib
import dataclasses
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.exporting.directory import is_saved_model
from t2t_keras.exporting.formats import (
    engine_of,
    find_converted,
    require_export,
)
from t2t_keras.options import OptionValues, option, parse_options

# The default of a flag that must be given.
REQUIRED: Any = dataclasses.MISSING

MAX_SEED = 2**31

# What a command returns: the object that `--json` prints.
CommandResult: TypeAlias = dict[str, Any]


class FlagGroup(NamedTuple):
    """A heading of the help, and the flags below it.

    Attributes:
        title: the heading.
        help: a text above the flags.
        is_further: whether few users need the flags, so that only `--help-all` shows
            them.
    """

    title: str
    help: str = ""
    is_further: bool = False


FURTHER = FlagGroup("further options", is_further=True)


@dataclasses.dataclass(kw_only=True)
class Command:
    """A command of `t2t` with the values of its flags.

    Attributes:
        summary: one line for `t2t --help`.
        heading: the heading under which `t2t --help` lists the command.
        waiting: what a spinner on a terminal says until a bar begins or the result is
            printed; "": there is no spinner.
        resumes: whether the same command continues after Ctrl-C.
        words_hint: advice for a user who gives the command an argument that it does
            not take; it follows the error.
        flag_hints: advice by the names of flags that the command does not have.
        usage: its usage; "": it follows from the flags.
        words: the command line.
        environ: the environment variables as the user has set them.
        given_flags: the names of the flags that the command line or the file gives.
        plugin_values: the dataclass of `plugin_flags` with the values that are given;
            None: there is none.
    """

    summary: ClassVar[str] = ""
    heading: ClassVar[str] = "others"
    waiting: ClassVar[str] = ""
    resumes: ClassVar[bool] = False
    words_hint: ClassVar[str] = ""
    flag_hints: ClassVar[Mapping[str, str]] = {}
    usage: ClassVar[str] = ""

    help: bool = option(False, "show this help message and exit", aliases=("-h",))
    help_all: bool = option(False, "show every option", names=("--help-all",))
    config: str | None = option(
        None, "a TOML or YAML file with values of the flags", metavar="FILE"
    )
    json: bool = option(False, "print the result as one line of JSON")
    words: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    given_flags: frozenset[str] = dataclasses.field(default=frozenset(), repr=False)
    plugin_values: Any = dataclasses.field(default=None, repr=False)

    @classmethod
    def plugin_flags(cls, problem: str | None, usr_dir: str | None) -> type | None:
        """Returns a dataclass with flags that a problem or plugins add; None: none.

        Args:
            problem: the value of `--problem`.
            usr_dir: the value of `--usr_dir`.

        Raises:
            UserError: the problem cannot be used, so that its flags are unknown.
        """
        return None

    def needs_tensorflow(self) -> bool:
        """Returns whether the command, with these flags, needs TensorFlow."""
        return False

    def decodes_files(self) -> bool:
        """Returns whether it decodes several batches at once, as `Translator` does.

        On a CPU, each operation then gets only a share of the cores, so that batches
        do not wait for each other.
        """
        return False

    def check(self) -> None:
        """Refuses mistakes that can be found before TensorFlow is imported.

        Raises:
            UserError: there is one.
        """

    def run(self) -> CommandResult:
        """Does the work; returns the object that `--json` prints."""
        raise NotImplementedError

    def show(self, result: CommandResult) -> str:
        """Formats the result for people, who may get less of it than `--json` prints.

        Nothing is printed if it returns "".
        """
        return ""

    def next_command(self) -> str:
        """Returns the command that usually comes next; "": there is none."""
        return ""

    def require_only(self, flags: Collection[str], reason: str) -> None:
        """Refuses flags that have no effect together with another one.

        Args:
            flags: the names of the flags that have an effect.
            reason: the other flag, for the message.

        Raises:
            UserError: another flag is given.
        """
        for name in sorted(self.given_flags - {*flags, "config"}):
            raise UserError(f"--{name} has no effect with {reason}; leave it out")


class FlagsOf(NamedTuple):
    """Fields of a dataclass of options as flags, whose values one dict collects.

    Attributes:
        options: the dataclass.
        groups: the names of the options that have flags, by the group of the help.
        keys: the flag `K=V,K=V` for all options, without hyphens, in the last of the
            groups; "": there is none.
        example: a value of this flag, for its help.
        rule: how its values are written, for the list of the keys without a flag.
        refused: the keys that have no effect on the command.
    """

    options: type
    groups: Mapping[FlagGroup, Collection[str]]
    keys: str = ""
    example: str = ""
    rule: str = ""
    refused: Collection[str] = ()

    def parse_keys(self, text: str) -> OptionValues:
        """Returns the options in the value of the flag for all options."""
        values = parse_options(self.options, text, self.keys)
        for name in values:
            if name in self.refused:
                raise UserError(f"'{name}' has no effect here")
        return values


def option_flags(
    options: type,
    groups: Mapping[FlagGroup, Collection[str]],
    keys: str = "",
    example: str = "",
    rule: str = "",
    refused: Collection[str] = (),
) -> OptionValues:
    """Returns the dataclass field for options that are flags, see `FlagsOf`.

    Its value has the options that are given, by name.
    """
    flags = FlagsOf(options, groups, keys, example, rule, refused)
    field: OptionValues = dataclasses.field(
        default_factory=dict, metadata={"flags_of": flags}
    )
    return field


@dataclasses.dataclass(kw_only=True)
class UsrDirFlags:
    """The flag of commands that look up a problem or an hparam set."""

    usr_dir: str | None = option(
        None, "folder of your own problems, models, sets, ...", metavar="DIR"
    )


CHECKPOINT_HELP = (
    "a step, latest, average, best (on dev), ema or a path (default: the newest "
    "average, otherwise the newest checkpoint)"
)


@dataclasses.dataclass(kw_only=True)
class CheckpointFlags(UsrDirFlags):
    """The flags of commands that load the model of a run."""

    checkpoint: str | None = option(None, CHECKPOINT_HELP, metavar="WHICH")


@dataclasses.dataclass(kw_only=True)
class RunFlags:
    """The argument of commands that read a run."""

    output_dir: str = option(
        REQUIRED,
        "a run directory",
        metavar="RUN",
        positional=True,
        aliases=("--model",),
    )


def hparams_flag() -> str:
    """Returns the dataclass field for changes to an hparam set."""
    return option(
        "",
        'changes to the set, such as "dropout=0.2,num_layers=4"',
        metavar="K=V,K=V",
        is_text=True,
    )


EngineName = Literal["auto", "ctranslate2", "tensorflow"]
DEFAULT_ENGINE: EngineName = "auto"
# The `flag_hints` of commands whose MODEL may be an export.
EXPORT_HINTS = {"export_dir": "MODEL may be an export: give its directory as MODEL"}


def engine_flag(group: FlagGroup | None = None) -> EngineName:
    """Returns the dataclass field for the engine that translates."""
    return option(
        DEFAULT_ENGINE,
        "the library that computes a run's model: ctranslate2, tensorflow or auto, "
        "which is CTranslate2 on a CPU where it is installed and suits model and "
        "options",
        metavar="NAME",
        group=group,
    )


def ensemble_flag(group: FlagGroup | None = None) -> tuple[str, ...]:
    """Returns the dataclass field for the further runs of an ensemble."""
    return option(
        (),
        "further run directories with the same vocabularies; the models decode "
        "together, by the mean of their probabilities",
        metavar="RUN ...",
        group=group,
    )


def quoted(path: str | Path) -> str:
    """Returns a path as a word of a command that the user may copy."""
    return shlex.quote(str(path))


def export_command(run: str | Path, checkpoint: str | None) -> str:
    """Returns the command that exports a checkpoint of a run."""
    command = f"t2t export {quoted(run)} DIR"
    if checkpoint in (None, "all"):
        return command
    return f"{command} --checkpoint {quoted(checkpoint or '')}"


DECODING_FLAGS = ("beam_size", "alpha", "n_best")
_SAMPLING_OPTIONS = ("sampling", *DecodingOptions.names("of_sampling"))
_RULE = """\
  A list is written [...]: protect=[url,email], glossary=[dog=Hund,cat=Katze].
  glossary and forbidden may also name a file, with `source TAB target`, or a
  phrase, in each line.
"""


def decoding_flags(*without: str, sampling: bool = False) -> OptionValues:
    """Returns the field for decoding: `DECODING_FLAGS`, and `--decode_hparams`.

    Its value has the options that are given, by name.

    Args:
        *without: names of options that the command does not take.
        sampling: whether the command takes the options of sampling. Its `--help` has
            the flags then; that of other commands leaves them to `--help-all`.
    """
    without = without if sampling else (*without, *_SAMPLING_OPTIONS)
    flags = [name for name in DECODING_FLAGS if name not in without]
    return option_flags(
        DecodingOptions,
        {FlagGroup("decoding", is_further=not sampling): flags},
        keys="decode_hparams",
        example="length_penalty=average,no_repeat_ngram=3",
        rule=_RULE,
        refused=without,
    )


def is_converted(
    run: str | Path, checkpoint: str | None, options: OptionValues, engine: EngineName
) -> bool:
    """Returns whether an engine runs a model without TensorFlow at once.

    Args:
        run: the run directory.
        checkpoint: the checkpoint.
        options: the decoding options that are given.
        engine: the engine.
    """
    with contextlib.suppress(UserError):  # `check` finds the mistake
        return bool(find_converted(Path(run), checkpoint, options, engine))
    return False


def decoding_flag(name: str) -> str:
    """Returns an option as it is written on the command line, for messages."""
    return f"--{name}" if name in DECODING_FLAGS else f"--decode_hparams {name}"


def check_decoding(options: OptionValues) -> None:
    """Refuses options that no model takes.

    Args:
        options: the decoding options that are given.

    Raises:
        UserError: a value is impossible, or has no effect with the other options.
    """
    if not options.get("sampling"):
        for name in options.keys() & {*_SAMPLING_OPTIONS[1:]}:
            raise UserError(f"{decoding_flag(name)} needs sampling=true as well")
    elif "beam_size" in options:
        raise UserError(
            "--beam_size has no effect with sampling=true; leave out one of them"
        )
    default = {"beam_size": options.get("n_best", 1)}  # not yet the problem's
    DecodingOptions(**default | options)


def check_export(
    options: OptionValues, export_dir: str | Path, engine: EngineName = "auto"
) -> None:
    """Refuses a directory without an export, and options that are fixed in the export.

    Args:
        options: the decoding options that are given.
        export_dir: the directory.
        engine: the engine.

    Raises:
        UserError: there is no export, such an option is given, or another engine.
    """
    require_export(export_dir)
    if engine not in ("auto", runner := engine_of(Path(export_dir))):
        raise UserError(
            f"--engine={engine}: the export {export_dir} needs {runner}; leave it out"
        )
    check_served(options, export_dir)


def check_served(options: OptionValues, export_dir: str | Path) -> None:
    """Refuses options that are fixed in a SavedModel; other formats check their own.

    Raises:
        UserError: such an option is given.
    """
    served = DecodingOptions.names("is_served")
    for name in options:
        if name not in served and is_saved_model(Path(export_dir)):
            raise UserError(
                f"{decoding_flag(name)} needs a run: the export {export_dir} has it "
                "built in"
            )
