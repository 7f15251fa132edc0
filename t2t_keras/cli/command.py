"""The class of commands, and the flags that several commands share."""

import argparse
import dataclasses
import math
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from t2t_keras.cli.parser import add_further, add_positional
from t2t_keras.errors import UserError
from t2t_keras.export.formats import find_loader
from t2t_keras.options import OptionValues, parse_options

N = TypeVar("N", int, float)

MAX_SEED = 2**31


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of `t2t`.

    Attributes:
        summary: one line for `t2t --help`.
        add_flags: declares the command's flags on its parser.
        run: does the work; returns the object that `--json` prints.
        show: formats that object for people; nothing is printed if it returns "".
        abridge: returns what `show` gets, which is less than `--json` has unless flags
            ask for all.
        uses_tensorflow: whether the command needs TensorFlow; may depend on its flags.
        check: refuses mistakes that can be found before TensorFlow is imported.
        group: the heading under which `t2t --help` lists the command.
        has_problem_flags: whether the command has the flags of `Problem.add_flags`.
        next_command: returns the command that usually comes after this one, for a
            user at a terminal; "": there is none.
        waiting: what a spinner on a terminal says until a bar begins or the result is
            printed; "": there is no spinner.
        resumes: whether the same command continues after Ctrl-C.
        decodes_files: whether the command decodes several batches at once, as
            `Translator` does; may depend on its flags. On a CPU, each operation then
            gets only a share of the cores, so that batches do not wait for each other.
        words_hint: advice for a user who gives the command an argument that it does not
            take; it follows the error.
    """

    summary: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], dict[str, Any]]
    show: Callable[[dict[str, Any]], str]
    uses_tensorflow: bool | Callable[[argparse.Namespace], bool] = False
    check: Callable[[argparse.Namespace], None] = lambda args: None
    group: str = "others"
    has_problem_flags: bool = False
    abridge: Callable[[dict[str, Any], argparse.Namespace], dict[str, Any]] = (
        lambda result, args: result
    )
    next_command: Callable[[argparse.Namespace], str] = lambda args: ""
    decodes_files: Callable[[argparse.Namespace], bool] = lambda args: False
    waiting: str = ""
    resumes: bool = False
    words_hint: str = ""


def add_usr_dir(parser: argparse._ActionsContainer) -> None:
    """Adds `--usr_dir`, for commands that look up a problem or an hparam set."""
    parser.add_argument(
        "--usr_dir",
        metavar="DIR",
        help="folder of your own problems, models, sets, ...",
    )


def require_only(args: argparse.Namespace, flags: Collection[str], reason: str) -> None:
    """Refuses flags that have no effect together with another one.

    Args:
        args: the flags.
        flags: the flags that have an effect, with hyphens.
        reason: the other flag, for the message.

    Raises:
        UserError: another flag is given.
    """
    for word in args.argv:
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag not in (*flags, "--config"):
            raise UserError(f"{flag} has no effect with {reason}; leave it out")


def add_checkpoint(parser: argparse._ActionsContainer, extra_help: str = "") -> None:
    """Adds `--checkpoint` and `--usr_dir`, for commands that load the model of a run.

    Args:
        parser: the command's parser, or a group of it.
        extra_help: the help for values that only this command takes.
    """
    parser.add_argument(
        "--checkpoint",
        metavar="WHICH",
        help="a step, latest, average, best (on dev), ema or a path (default: the "
        f"newest average, otherwise the newest checkpoint){extra_help}",
    )
    add_usr_dir(parser)


class _ModelAction(argparse.Action):
    """Sets `export_dir` if the directory has an export, otherwise `output_dir`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        # CTranslate2's exports have a config.json, as runs do.
        is_export = find_loader(Path(str(values))) is not None
        setattr(namespace, "export_dir" if is_export else "output_dir", values)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the model, a run or an export, and the flags to load it.

    The namespace gets `output_dir` of a run, or `export_dir` of an export.
    """
    choice = parser.add_mutually_exclusive_group(required=True)
    for flag in ("--output_dir", "--export_dir"):
        choice.add_argument(flag, help=argparse.SUPPRESS)
    choice.add_argument(
        "--model", action=_ModelAction, dest="model", help=argparse.SUPPRESS
    )
    choice.add_argument(
        "model",
        nargs="?",
        action=_ModelAction,
        metavar="MODEL",
        default=argparse.SUPPRESS,
        help="a run directory, or a model that `t2t export` wrote; also --model MODEL",
    )
    add_checkpoint(parser)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds a run directory, its checkpoint, and `--usr_dir`."""
    add_run_dir(parser)
    add_checkpoint(parser)


def export_command(args: argparse.Namespace) -> str:
    """Returns the command that exports the run and checkpoint of `add_run`."""
    command = f"t2t export {quoted(args.output_dir)} DIR"
    if args.checkpoint in (None, "all"):
        return command
    return f"{command} --checkpoint {quoted(args.checkpoint)}"


def add_run_dir(container: argparse._ActionsContainer, required: bool = True) -> None:
    """Adds a run directory as `output_dir`.

    Args:
        container: the command's parser, or a group of it.
        required: whether it must be given.
    """
    add_positional(
        container,
        "RUN",
        "--model",
        "--output_dir",
        dest="output_dir",
        required=required,
        help="a run directory",
    )


def add_ensemble(parser: argparse._ActionsContainer) -> None:
    """Adds `--ensemble`, for commands whose model may be an ensemble of runs."""
    parser.add_argument(
        "--ensemble",
        nargs="+",
        default=(),
        metavar="RUN",
        help="further run directories with the same vocabularies; the models decode "
        "together, by the mean of their probabilities",
    )


def add_hparams(
    parser: argparse.ArgumentParser, default: str = "", positional: str = ""
) -> None:
    """Adds `--hparams_set` and `--hparams`, for commands that build a model.

    Args:
        parser: the command's parser.
        default: what happens without `--hparams_set`; "": it is required.
        positional: the help of a positional argument SET; "": the set is only a flag.
    """
    help = "a name of `t2t list`" + (f" (default: {default})" if default else "")
    if positional:
        add_positional(
            parser, "SET", "--hparams_set", dest="hparams_set", help=positional
        )
    else:
        parser.add_argument(
            "--hparams_set", metavar="SET", required=not default, help=help
        )
    parser.add_argument(
        "--hparams",
        default="",
        metavar="K=V,K=V",
        help='changes to the set, such as "dropout=0.2,num_layers=4"',
    )


def given_options(
    args: argparse.Namespace, options: type, keys: str | None = None
) -> OptionValues:
    """Returns the fields of a dataclass that the command line gives, by name.

    Args:
        args: the flags.
        options: the dataclass.
        keys: the flag of `add_keys`, without hyphens; None: there is none.

    Raises:
        UserError: an option is given by its flag and in the flag of `add_keys`.
    """
    by_flags: OptionValues = {}
    for field in dataclasses.fields(options):
        value = getattr(args, field.name, None)
        if value is not None:
            by_flags[field.name] = value
    by_keys: OptionValues = (keys and getattr(args, keys)) or {}
    for name in by_flags.keys() & by_keys.keys():
        raise UserError(f"--{name} is in --{keys} as well; leave out one")
    return by_flags | by_keys


def add_option_flags(
    group: argparse._ActionsContainer, options: type, names: Collection[str]
) -> None:
    """Adds a flag for options, which are fields of a dataclass.

    The dataclass checks the limits of values at its construction.
    """
    for field in dataclasses.fields(options):
        if field.name not in names:
            continue
        settings: dict[str, Any] = {"metavar": "NAME"}
        if get_origin(field.type) is Literal:
            settings = {"choices": get_args(field.type)}
        elif field.type is float:
            settings = {"type": float, "metavar": "X"}
        elif field.type in (int, int | None):
            settings = {"type": int, "metavar": "N"}
        group.add_argument(f"--{field.name}", help=described(field), **settings)


class KeyValues(OptionValues):
    """The options that a flag of `add_keys` gives.

    Attributes:
        text: the value of the flag, in which an option may name a file.
    """

    def __init__(self, values: OptionValues, text: str) -> None:
        super().__init__(values)
        self.text = text


def add_keys(
    parser: argparse.ArgumentParser,
    group: argparse._ActionsContainer,
    flag: str,
    options: type,
    example: str,
    rule: str = "",
    listed: Collection[str] = (),
    refused: Collection[str] = (),
) -> None:
    """Adds a flag `K=V,K=V` for options, which are fields of a dataclass.

    Args:
        parser: the command's parser, whose help gets a list of the keys.
        group: the group of the flag.
        flag: the flag, with hyphens.
        options: the dataclass.
        example: a value of the flag, for its help.
        rule: how values are written, for the list of the keys.
        listed: the options that are listed; the others have flags as well.
        refused: options that have no effect on the command.
    """

    def parse(text: str) -> KeyValues:
        try:
            values = parse_options(options, utf8(text), flag.lstrip("-"))
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        for name in values:
            if name in refused:
                raise argparse.ArgumentTypeError(f"'{name}' has no effect here")
        return KeyValues(values, text)

    text = f'further options, such as "{example}": see --help-all'
    group.add_argument(flag, type=parse, metavar="K=V,K=V", help=text)
    rows = {
        field.name: described(field)
        for field in dataclasses.fields(options)
        if field.name in listed
    }
    add_further(parser, f"keys of {flag}", rule + two_columns(rows), len(rows))


def described(field: "dataclasses.Field[object]") -> str:
    """Returns the help of an option, with its default."""
    default = field.default
    if field.metadata.get("from_problem"):
        default = "the problem's"
    text: str = field.metadata["help"]
    is_default = default not in (None, False, (), "") and "(default" not in text
    return f"{text} (default: {default})" if is_default else text


def two_columns(rows: Mapping[str, str]) -> str:
    """Formats names and sentences in two columns, for a terminal."""
    indent = max(map(len, rows), default=0) + 4
    # A group of the help indents it by two.
    width = max(shutil.get_terminal_size().columns - 4, indent + 20)
    return "\n".join(
        f"  {name:<{indent - 2}}"
        + textwrap.fill(text, width - indent).replace("\n", "\n" + " " * indent)
        for name, text in rows.items()
    )


def quoted(path: str | Path) -> str:
    """Returns a path as a word of a command that the user may copy."""
    return shlex.quote(str(path))


def table(rows: Mapping[str, object]) -> str:
    """Formats names and values in two columns; on a terminal long texts are wrapped."""
    indent = max(map(len, rows), default=0) + 2
    lines = []
    for name, value in rows.items():
        lines.append(f"{name:<{indent}}{wrapped(str(_rounded(value)), indent)}")
    return "\n".join(lines)


def wrapped(text: str, indent: int = 4) -> str:
    """Wraps a text between its words, if standard output is a terminal.

    Args:
        text: the text, in one line.
        indent: the number of spaces before every line but the first.
    """
    if not sys.stdout.isatty():
        return text
    width = max(shutil.get_terminal_size().columns - indent, 20)
    if len(text) <= width:
        return text
    return textwrap.fill(
        text, width, break_long_words=False, break_on_hyphens=False
    ).replace("\n", "\n" + " " * indent)


def columns(rows: Sequence[Mapping[str, object]]) -> str:
    """Formats rows as a table with a header; numbers are aligned to the right.

    On a terminal long texts in the last column are wrapped.
    """
    table_rows = [list(rows[0])]
    for row in rows:
        table_rows.append([str(_rounded(value)) for value in row.values()])
    padded_columns = []
    for value, cells in zip(
        rows[0].values(), zip(*table_rows, strict=True), strict=True
    ):
        width = max(map(len, cells))
        pad = str.ljust if isinstance(value, str) else str.rjust
        padded_columns.append([pad(cell, width) for cell in cells])
    lines = []
    for cells in zip(*padded_columns, strict=True):
        start = "".join(f"{cell}  " for cell in cells[:-1])
        lines.append((start + wrapped(cells[-1].rstrip(), len(start))).rstrip())
    return "\n".join(lines)


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"


def _number_type(
    number_type: Callable[[str], N],
    name: str,
    holds: Callable[[N], bool],
    refusal: str,
) -> Callable[[str], N]:
    """Returns the function that converts a flag's text to a number.

    Args:
        number_type: int or float.
        name: what argparse calls the number: "invalid integer value: 'x'".
        holds: returns whether the flag takes a number.
        refusal: the error message for other numbers, before the text of the number.
    """

    def convert(text: str) -> N:
        value = number_type(text)
        if not holds(value):
            raise argparse.ArgumentTypeError(f"{refusal} {text}")
        return value

    convert.__name__ = name
    return convert


def utf8(text: str) -> str:
    """Returns the text of an argument; Python escapes bytes that are not UTF-8."""
    if any("\udc80" <= character <= "\udcff" for character in text):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid UTF-8")
    return text


_NEGATIVE = "must not be negative, but is"
_SEEDS = f"must be from 0 to {MAX_SEED - 1}, not"

positive = _number_type(
    int, "positive integer", lambda n: n >= 1, "must be at least 1, not"
)
not_negative = _number_type(int, "integer", lambda n: n >= 0, _NEGATIVE)
at_least_two = _number_type(int, "integer", lambda n: n >= 2, "must be at least 2, not")
seed = _number_type(int, "integer", lambda n: 0 <= n < MAX_SEED, _SEEDS)
positive_number = _number_type(
    float, "number", lambda x: 0 < x < math.inf, "must be above 0, not"
)
not_negative_number = _number_type(
    float, "number", lambda x: 0 <= x < math.inf, _NEGATIVE
)
