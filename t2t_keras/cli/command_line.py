"""Parses a command line: finds the command, and explains unknown names.

Only the command that is given is imported, so that its help is fast.
"""

import argparse
import contextlib
import functools
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from t2t_keras import registry
from t2t_keras.cli import (
    data,
    evaluation,
    exporting,
    listing,
    repeating,
    training,
    translation,
)
from t2t_keras.cli.command import Command, two_columns, utf8
from t2t_keras.cli.config_file import apply_config, read_config, typed_names
from t2t_keras.cli.extensions import extensions
from t2t_keras.cli.parser import HelpAll, Parser, positional_first
from t2t_keras.entry_points import counterpart, load_plugin, load_plugins, plugin_names
from t2t_keras.errors import UserError, did_you_mean, require_local
from t2t_keras.usr_dir import load_usr_dir

CORE = {
    **listing.COMMANDS,
    **data.COMMANDS,
    **training.COMMANDS,
    **repeating.COMMANDS,
    **translation.COMMANDS,
    **evaluation.COMMANDS,
    **exporting.COMMANDS,
}

# The groups of commands in `t2t --help`; plugins may have others.
GROUPS = ("data and training", "using a model", "judging a model")


@functools.cache
def commands() -> dict[str, Command]:
    """Returns the commands by name: those of the core, and those of plugins."""
    return CORE | load_plugins("commands")


def find_command(name: str) -> Command | None:
    """Returns a command; other plugins are not imported. None: there is none."""
    return CORE.get(name) or load_plugin("commands", name)


_WORKFLOW = """\
the workflow:
  t2t datagen   --problem translate_ende_toy --data_dir data
  t2t train     --problem translate_ende_toy --hparams_set tiny \\
                --data_dir data --output_dir runs/toy
  t2t translate runs/toy source.txt --output translation.txt
"""


def parse(argv: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """Returns the command and its arguments.

    The namespace also has `argv`, the words, and `environ`, the variables.
    """
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    name = argv[0] if argv else "--help"
    if name.startswith("-"):
        _answer_flag(name)
    command = find_command(name)
    if command is None:
        _refuse_command(name, argv[1:])
    parser = command_parser(name, command)
    early_flags = _early_flags(argv[1:])
    values: dict[str, object] = {}
    if early_flags.config:
        names = [*CORE, *plugin_names("commands")]
        try:
            values = read_config(early_flags.config, name, names)
        except UserError as error:
            _check_flags(name, argv[1:], parser, error)
            raise
    problem = early_flags.problem or _text(values, "problem")
    usr_dir = early_flags.usr_dir or _text(values, "usr_dir")
    mistake = _add_problem_flags(command, problem, usr_dir, parser)
    _check_flags(name, argv[1:], parser, mistake)
    file_values = {flag for flag, value in values.items() if value is not None}
    words = positional_first(parser, argv[1:], file_values)
    if values:
        first_parser = command_parser(name, command)
        _add_problem_flags(command, problem, usr_dir, first_parser)
        positional_first(first_parser, argv[1:], file_values)
        typed = typed_names(first_parser, words)

        @functools.cache  # every key of another command asks for them
        def other_flags() -> set[str]:
            return _all_flags(problem, usr_dir)

        apply_config(early_flags.config, values, parser, typed, other_flags)
    namespace = argparse.Namespace(
        command=name, argv=list(argv), environ=dict(os.environ)
    )
    args = parser.parse_args(words, namespace)
    _require_values(args, parser)
    for extension in extensions(name):
        command = extension.select(command, args)
    return command, args


def command_parser(name: str, command: Command) -> Parser:
    """Returns the parser of a command, without the flags of a problem."""
    parser = Parser(prog=f"t2t {name}", description=command.summary, allow_abbrev=False)
    parser.words_hint = command.words_hint
    parser.add_argument("--help-all", action=HelpAll)
    command.add_flags(parser)
    for extension in extensions(name):
        extension.add_flags(parser)
    parser.add_argument(
        "--config", metavar="FILE", help="a TOML or YAML file with values of the flags"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as one line of JSON"
    )
    return parser


def _program_parser() -> Parser:
    """Returns the parser for what precedes the command."""
    parser = Parser(
        prog="t2t",
        usage="t2t [-h] [--version] COMMAND ...",
        description="The Transformer of 'Attention Is All You Need': train, translate, "
        "evaluate, export.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action=_Version, help="print the versions and exit"
    )
    return parser


def _answer_flag(flag: str) -> NoReturn:
    """Prints the help or the versions; refuses other flags before the command."""
    parser = _program_parser()
    if flag not in parser._option_string_actions:
        hint = _near_flag(flag, parser._option_string_actions)
        parser.error(f"there is no flag {flag} before the command{hint}")
    if flag != "--version":
        parser.epilog = f"{_commands_help()}\n{_WORKFLOW}"
    parser.parse_args([flag])
    sys.exit()  # not reached: both flags end the program


def _refuse_command(name: str, words: Sequence[str]) -> NoReturn:
    """Ends the program at an unknown command: says what to use instead.

    Args:
        name: the command; of another toolkit's program, all flags are answered as well.
        words: the words after it.
    """
    parser = _program_parser()
    if explained := counterpart("t2t", name):
        flags = _unknown_flags(words, parser)
        answers = [counterpart(name, flag, value) for flag, value in flags]
        parser.refuse([explained, *filter(None, answers)])
    hint = did_you_mean(name, [*CORE, *plugin_names("commands")], "{}")
    parser.error(f"there is no command '{name}'{hint} (`t2t --help` lists them)")


def _complete() -> None:
    """Answers the shell's request for completions, and ends the program."""
    from t2t_keras.cli.completion import complete

    parser = _program_parser()
    subparsers = parser.add_subparsers()
    parsers = {}
    for name, command in commands().items():
        parsers[name] = command_parser(name, command)
        subparsers._name_parser_map[name] = parsers[name]
    complete(parser, parsers)


def _check_flags(
    command: str, words: Sequence[str], parser: Parser, mistake: UserError | None
) -> None:
    """Ends the program at unknown flags: says for each what to use instead.

    Args:
        command: the command.
        words: the words after it.
        parser: its parser.
        mistake: why the flags of the problem are unknown.
    """
    messages: list[str] = []
    for flag, value in _unknown_flags(words, parser):
        if advice := counterpart(command, flag, value):
            messages.append(advice)
        elif mistake and flag.startswith("--"):
            messages.append(str(mistake))  # it may be one of the problem's flags
        elif flag.startswith("--"):
            hint = _near_flag(flag, parser._option_string_actions)
            messages.append(f"there is no flag {flag}{hint}")
    if messages:
        # A flag of another toolkit may be one of the problem's as well.
        parser.refuse([*messages, *([str(mistake)] if mistake else [])])


def _unknown_flags(words: Sequence[str], parser: Parser) -> Iterator[tuple[str, str]]:
    """Yields the flags that a parser does not have, with their values or ""."""
    flags = parser._option_string_actions
    has_command = any(action.nargs == argparse.REMAINDER for action in parser._actions)
    for index, word in enumerate(words):
        previous = words[index - 1] if index else ""
        is_flag_or_value = word.startswith("-") or previous.startswith("-")
        if has_command and not is_flag_or_value:
            return  # the following flags belong to the command that begins here
        flag, equals, value = word.partition("=")
        if not re.match("--?[A-Za-z]", flag) or flag in flags:
            continue
        if not equals and index + 1 < len(words):
            value = words[index + 1]
        yield flag, value


def _near_flag(flag: str, flags: Iterable[str]) -> str:
    """Returns `did_you_mean` by names: the dashes would make any two flags similar."""
    names = [name.removeprefix("--") for name in flags]
    return did_you_mean(flag.removeprefix("--"), names, "--{}")


def _require_values(args: argparse.Namespace, parser: Parser) -> None:
    """Refuses empty names and addresses of remote storage in the values of flags."""
    for action in parser._actions:
        if action.type is utf8:  # a text may be empty, or look like an address
            continue
        values = getattr(args, action.dest, None)
        for value in values if isinstance(values, list) else [values]:
            name = (action.option_strings or [action.dest])[0]
            # An empty list K=V,K=V changes nothing.
            if value == "" and action.type is None and action.metavar != "K=V,K=V":
                raise UserError(f"{name} is empty; give a value, or leave it out")
            require_local(name, value)


def _early_flags(words: Sequence[str]) -> argparse.Namespace:
    """Returns the flags that decide which other flags there are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--config", "--problem", "--usr_dir"):
        parser.add_argument(flag, nargs="?")
    return parser.parse_known_args(words)[0]


def _text(values: Mapping[str, object], name: str) -> str | None:
    """Returns a value of a file that must be a text; None: it is not there."""
    return str(values[name]) if values.get(name) is not None else None


def _all_flags(problem: str | None, usr_dir: str | None) -> set[str]:
    """Returns the flags of all commands, and of a problem."""
    flags: set[str] = set()
    for name, command in commands().items():
        parser = command_parser(name, command)
        _add_problem_flags(command, problem, usr_dir, parser)
        flags |= parser._option_string_actions.keys()
    return flags


def _add_problem_flags(
    command: Command, problem: str | None, usr_dir: str | None, parser: Parser
) -> UserError | None:
    """Adds the flags that only the problem of `--problem` has, for `t2t datagen`.

    Returns:
        The error if the problem cannot be used, so that its flags are unknown.
    """
    if not (command.has_problem_flags and problem):
        return None
    try:
        with contextlib.redirect_stdout(sys.stderr):
            if usr_dir:
                load_usr_dir(usr_dir)
            group = parser.add_argument_group(f"problem {problem}")
            registry.problem(problem).add_flags(group)
    except UserError as error:
        return error  # it is reported when the command runs, or at an unknown flag
    return None


class _Version(argparse.Action):
    """Prints the versions, which it looks up only if asked, and ends the program."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        package, *libraries = (
            f"{name} {importlib.metadata.version(name)}"
            for name in ("t2t_keras", "tensorflow", "keras")
        )
        print(f"{package} ({', '.join(libraries)})")
        parser.exit()


def _commands_help() -> str:
    """Returns the commands with their summaries, in groups."""
    groups: dict[str, dict[str, str]] = {title: {} for title in GROUPS}
    for name, command in commands().items():
        groups.setdefault(command.group, {})[name] = command.summary
    sections = [
        f"{title}:\n{two_columns(summaries)}\n"
        for title, summaries in groups.items()
        if summaries
    ]
    return "\n".join(sections)
