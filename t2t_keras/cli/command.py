"""The class of commands, their parser, and the flags that several of them share."""

import argparse
import contextlib
import dataclasses
import math
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

from t2t_keras.console import two_columns
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.entry_points import load_plugin, plugin_names
from t2t_keras.errors import UserError
from t2t_keras.export.directory import is_saved_model
from t2t_keras.export.formats import (
    engine_of,
    find_converted,
    find_loader,
    require_export,
)
from t2t_keras.options import OptionValues, parse_options
from t2t_keras.run.config import require_run

_HELP_COLUMN = 26


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, and whose help fits on a screen.

    `--help` leaves out the groups of `add_further`, which `--help-all` shows.

    Attributes:
        words_hint: advice that follows the error about an unexpected argument.
    """

    words_hint = ""

    def error(self, message: str) -> NoReturn:
        """Prints the message, and ends the program with exit code 2."""
        sentence = rf"give \1; `{self.prog} --help` says what it is"
        message = re.sub("^one of the arguments (.*) is required$", sentence, message)
        if self.words_hint and re.match("unrecognized arguments: [^-]", message):
            message += f"; {self.words_hint}"
        self.refuse([message])

    def refuse(self, messages: Iterable[str]) -> NoReturn:
        """Prints each message once, in a line; ends the program with exit code 2."""
        for message in dict.fromkeys(messages):
            print(f"{self.prog}: error: {message}", file=sys.stderr)
        sys.exit(2)

    def format_usage(self) -> str:
        """Returns the required arguments in one line."""
        return f"usage: {self._short_usage()}\n"

    def format_help(self, with_further: bool = False) -> str:
        """Returns the help.

        Args:
            with_further: whether the groups of `add_further` are in it.
        """
        formatter = argparse.RawDescriptionHelpFormatter(
            self.prog, max_help_position=_HELP_COLUMN
        )
        width = shutil.get_terminal_size().columns - 2
        usage = textwrap.fill(
            f"usage: {self._short_usage()}", width, subsequent_indent="  "
        )
        formatter.add_text(f"usage: {self.usage}" if self.usage else usage)
        formatter.add_text(self.description)
        number_left_out = 0
        for group in self._action_groups:
            if isinstance(group, _FurtherGroup) and not with_further:
                number_left_out += group.number_of_options()
                continue
            formatter.start_section(group.title)
            formatter.add_text(_wrapped(group.description))
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        if number_left_out:
            command = f"`{self.prog} --help-all`"
            formatter.add_text(f"{command} has {number_left_out} further options.")
        return formatter.format_help()

    def _short_usage(self) -> str:
        """Returns the program, the command and what it must be given."""
        required = {id(action) for action in self._actions if action.required}
        for group in self._mutually_exclusive_groups:
            if group.required:
                required |= set(map(id, group._group_actions))
        words = [self.prog]
        for action in self._actions:
            if action.nargs == argparse.REMAINDER:
                words += ["[flags]", str(action.metavar)]
            elif not action.option_strings:
                name = str(action.metavar or action.dest)
                name += " ..." if action.nargs in ("*", "+") else ""
                words.append(name if id(action) in required else f"[{name}]")
            elif action.required:
                value = str(action.metavar or action.dest.upper())
                words += [action.option_strings[0], value]
        if "[flags]" not in words:
            words.append("[flags]")
        return " ".join(words)


def _wrapped(text: str | None) -> str | None:
    """Returns the description of a group; one of several lines is formatted already."""
    if not text or "\n" in text:
        return text
    return textwrap.fill(text, shutil.get_terminal_size().columns - 4)


class _FurtherGroup(argparse._ArgumentGroup):
    """A group that only `--help-all` shows."""

    number_of_keys = 0

    def number_of_options(self) -> int:
        """Returns how many flags and keys the group has."""
        return len(self._group_actions) + self.number_of_keys


def add_further(
    parser: argparse.ArgumentParser,
    title: str,
    description: str | None = None,
    number_of_keys: int = 0,
) -> argparse._ArgumentGroup:
    """Adds a group of flags that few users need, which only `--help-all` shows.

    Args:
        parser: the command's parser.
        title: the title of the group.
        description: a text above the flags.
        number_of_keys: how many keys of a flag the text describes.
    """
    group = _FurtherGroup(parser, title, description)
    group.number_of_keys = number_of_keys
    parser._action_groups.append(group)
    return group


class HelpAll(argparse.Action):
    """Prints the whole help, and ends the program."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(
            option_strings, argparse.SUPPRESS, nargs=0, help="show every option"
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Prints the help of `--help` with the groups of `add_further`."""
        assert isinstance(parser, Parser)
        print(parser.format_help(with_further=True), end="")
        parser.exit()


def add_positional(
    container: argparse._ActionsContainer,
    metavar: str,
    *flags: str,
    dest: str,
    help: str,
    required: bool = False,
) -> None:
    """Adds an argument that is given by its place or by a flag.

    Args:
        container: the command's parser, or a group of it.
        metavar: the name in the help.
        *flags: the flags; the help names the first one.
        dest: its name in the namespace.
        help: what it is.
        required: whether it must be given.
    """
    choice = container.add_mutually_exclusive_group(required=required)
    choice.add_argument(*flags, dest=dest, metavar=metavar, help=argparse.SUPPRESS)
    choice.add_argument(
        dest,
        nargs="?",
        metavar=metavar,
        # Without it, an absent word would replace the value of the flag by None.
        default=argparse.SUPPRESS,
        help=f"{help}; also {flags[0]} {metavar}",
    )


def positional_first(
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    file_values: Collection[str] = (),
) -> list[str]:
    """Returns a command line with its positional arguments moved before its flags.

    argparse takes `a --flag x b` for one positional argument and a remainder, and lets
    a flag of several values take what follows it. A positional argument that a flag
    or the file of `--config` gives, as in `--model RUN FILE`, is removed from the
    parser, so that the others take the words. If there are words for all of them, they
    take precedence over the file.

    Args:
        parser: the command's parser.
        words: the command line.
        file_values: the names of the flags that the file of `--config` gives.
    """
    if "--" in words or any(
        action.nargs == argparse.REMAINDER for action in parser._actions
    ):
        return list(words)
    positional: list[str] = []
    flags: list[str] = []
    waiting: Iterator[int] = iter(())
    for word in words:
        if re.match("--?[A-Za-z]", word):
            flags.append(word)
            waiting = iter(range(_number_of_values(parser, word)))
        elif next(waiting, None) is not None:
            flags.append(word)
        else:
            positional.append(word)
    names = {word.partition("=")[0] for word in flags}
    _remove_given(parser, len(positional), names, {f"--{x}" for x in file_values})
    return [*positional, *flags]


def _remove_given(
    parser: argparse.ArgumentParser,
    num_words: int,
    flags: Collection[str],
    file_flags: Collection[str],
) -> None:
    """Removes positional arguments that flags give, if the others can take all words.

    Otherwise argparse tells which flag and word exclude each other.

    Args:
        parser: the command's parser.
        num_words: the number of words that are neither flags nor their values.
        flags: the flags of the command line, with hyphens.
        file_flags: the flags that the file of `--config` gives, with hyphens.
    """
    arguments = [action for action in parser._actions if not action.option_strings]
    by_flags = _arguments_given_by(flags, parser)
    spare = len(arguments) - len(by_flags) - num_words
    if spare < 0:
        return
    by_file = _arguments_given_by(file_flags, parser)
    by_file = [action for action in by_file if action not in by_flags]
    for action in [*by_flags, *by_file[:spare]]:
        parser._remove_action(action)


def _arguments_given_by(
    flags: Collection[str], parser: argparse.ArgumentParser
) -> list[argparse.Action]:
    """Returns the positional arguments that can also be given by one of the flags."""
    arguments: list[argparse.Action] = []
    for group in parser._mutually_exclusive_groups:
        actions = group._group_actions
        if any(not set(flags).isdisjoint(x.option_strings) for x in actions):
            arguments += [action for action in actions if not action.option_strings]
    return arguments


def _number_of_values(parser: argparse.ArgumentParser, word: str) -> int:
    """Returns how many words after a flag are its values; all of them: 10^9."""
    action = parser._option_string_actions.get(word)
    if action is None or action.nargs == 0:  # also `--flag=value`
        return 0
    if isinstance(action.nargs, int):
        return action.nargs
    return 1 if action.nargs is None else 10**9


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


_MANY_CHOICES = 6


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
            choices = get_args(field.type)
            settings = {"choices": choices}
            if len(choices) > _MANY_CHOICES:  # a line of the help has 80 characters
                settings["metavar"] = "NAME"
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


def quoted(path: str | Path) -> str:
    """Returns a path as a word of a command that the user may copy."""
    return shlex.quote(str(path))


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


@dataclasses.dataclass(frozen=True)
class Extension:
    """An entry point of `t2t_keras.extensions`, named `COMMAND.NAME`.

    Attributes:
        add_flags: adds flags to the parser of the command.
        select: returns the command to run, given the extended command and the flags:
            the same unless the extension's flags are given.
    """

    add_flags: Callable[[argparse.ArgumentParser], object]
    select: Callable[[Command, argparse.Namespace], Command]


def extensions(command: str) -> list[Extension]:
    """Returns the extensions of a command; those of others are not imported."""
    plugins = []
    for name in plugin_names("extensions"):
        if name.startswith(f"{command}."):
            plugins.append(load_plugin("extensions", name))
    return [plugin for plugin in plugins if plugin is not None]


# Of `--engine`.
DEFAULT_ENGINE = "auto"
FLAGS = ("beam_size", "alpha", "n_best")
_SAMPLING_OPTIONS = ("sampling", *DecodingOptions.names("of_sampling"))
_RULE = """\
  A list is written [...]: protect=[url,email], glossary=[dog=Hund,cat=Katze].
  glossary and forbidden may also name a file, with `source TAB target`, or a
  phrase, in each line.
"""


def add_decoding_flags(
    parser: argparse.ArgumentParser, *without: str, sampling: bool = False
) -> None:
    """Adds the flags of decoding: `FLAGS`, and `--decode_hparams` for any option.

    Args:
        parser: the command's parser.
        *without: names of options that the command does not take.
        sampling: whether the command takes the options of sampling. Its `--help` has
            the flags then; that of other commands leaves them to `--help-all`.
    """
    without = without if sampling else (*without, *_SAMPLING_OPTIONS)
    group = (
        parser.add_argument_group("decoding")
        if sampling
        else add_further(parser, "decoding")
    )
    add_option_flags(group, DecodingOptions, [x for x in FLAGS if x not in without])
    names = {field.name for field in dataclasses.fields(DecodingOptions)}
    add_keys(
        parser,
        group,
        "--decode_hparams",
        DecodingOptions,
        "length_penalty=average,no_repeat_ngram=3",
        _RULE,
        listed=names - {*FLAGS, *without},
        refused=without,
    )


def add_engine(parser: argparse._ActionsContainer) -> None:
    """Adds `--engine`, for commands that translate with a run."""
    parser.add_argument(
        "--engine",
        choices=("auto", "ctranslate2", "tensorflow"),
        help="the library that computes a run's model; auto: CTranslate2 on a CPU "
        "where it is installed and suits model and options "
        f"(default: {DEFAULT_ENGINE})",
    )


def chosen_engine(args: argparse.Namespace) -> str:
    """Returns the value of `--engine`, or its default."""
    return args.engine or DEFAULT_ENGINE


def is_converted(args: argparse.Namespace, run: str | Path) -> bool:
    """Returns whether `--engine` runs a model without TensorFlow at once."""
    engine = chosen_engine(args)
    with contextlib.suppress(UserError):  # `check` finds the mistake
        options = given_decoding(args)
        return bool(find_converted(Path(run), args.checkpoint, options, engine))
    return False


def given_decoding(args: argparse.Namespace) -> OptionValues:
    """Returns the decoding options that the command line gives, by name.

    Raises:
        UserError: an option is given by its flag and in `--decode_hparams`.
    """
    return given_options(args, DecodingOptions, "decode_hparams")


def flag_name(name: str) -> str:
    """Returns an option as it is written on the command line, for messages."""
    return f"--{name}" if name in FLAGS else f"--decode_hparams {name}"


def check_decoding(args: argparse.Namespace) -> OptionValues:
    """Returns the given options; refuses options that no model takes.

    Raises:
        UserError: a value is impossible, or has no effect with the other options.
    """
    options = given_decoding(args)
    if not options.get("sampling"):
        for name in options.keys() & {*_SAMPLING_OPTIONS[1:]}:
            raise UserError(f"{flag_name(name)} needs sampling=true as well")
    elif "beam_size" in options:
        raise UserError(
            "--beam_size has no effect with sampling=true; leave out one of them"
        )
    default = {"beam_size": options.get("n_best", 1)}  # not yet the problem's
    DecodingOptions(**default | options)
    return options


def check_decoder(args: argparse.Namespace) -> None:
    """Refuses flags with which no model can be loaded.

    Raises:
        UserError: there is no such model, or it does not take these options.
    """
    options = check_decoding(args)
    if not args.export_dir:
        for run in (args.output_dir, *args.ensemble):
            require_run(run)
        if args.ensemble and args.engine == "ctranslate2":
            raise UserError("--ensemble needs TensorFlow; leave out --engine")
        return
    if args.ensemble:
        raise UserError("--ensemble needs --output_dir; export an ensemble instead")
    if args.checkpoint:
        raise UserError("--checkpoint needs --output_dir; an export has it built in")
    check_export(options, args.export_dir, args.engine)


def check_export(
    options: OptionValues, export_dir: str | Path, engine: str | None = None
) -> None:
    """Refuses a directory without an export, and options that are fixed in the export.

    Args:
        options: the decoding options that are given.
        export_dir: the directory.
        engine: the value of `--engine`; None: it is not given.

    Raises:
        UserError: there is no export, such an option is given, or another engine.
    """
    require_export(export_dir)
    if engine not in (None, "auto", runner := engine_of(Path(export_dir))):
        raise UserError(
            f"--engine {engine}: the export {export_dir} needs {runner}; leave it out"
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
                f"{flag_name(name)} needs a run: the export {export_dir} has it built "
                "in"
            )
