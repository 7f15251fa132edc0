"""Completion of command lines in shells, by argcomplete."""

import argparse
from collections.abc import Callable, Mapping

import argcomplete

from t2t_keras import registry
from t2t_keras.cli.parser import Parser
from t2t_keras.usr_dir import load_usr_dir


def complete(parser: Parser, parsers: Mapping[str, Parser]) -> None:
    """Answers the shell's request for completions, and ends the program.

    The names of problems and hparam sets are those that are registered now.

    Args:
        parser: the parser of the program.
        parsers: the parsers of the commands.
    """
    completers = {
        "--problem": _names_of(registry.list_problems, "_rev"),
        "--hparams_set": _names_of(registry.list_hparams),
    }
    for command_parser in parsers.values():
        for flag, action in command_parser._option_string_actions.items():
            if flag in completers:
                action.completer = completers[flag]  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _names_of(
    list_names: Callable[[], dict[str, str]], suffix: str = ""
) -> Callable[..., list[str]]:
    """Returns a function that completes registered names.

    Args:
        list_names: returns the names.
        suffix: what may follow a name.
    """

    def names(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        if getattr(parsed_args, "usr_dir", None):
            load_usr_dir(parsed_args.usr_dir)
        names = list(list_names())
        if suffix:
            names += [f"{name}{suffix}" for name in names if prefix.startswith(name)]
        return names

    return names
