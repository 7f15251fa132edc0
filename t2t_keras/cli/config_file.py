"""`--config FILE`: gives flags by name, in TOML or YAML.

    problem = "translate_text"
    data_dir = "data"
    hparams = { dropout = 0.2, num_layers = 4 }

    [train]
    seed = 3

A key that is not a table is a flag of every command that has it; a table with the name
of a command has flags of this command only. So one file serves `datagen`, `train` and
`translate`. A table may also stand for `K=V,K=V`. A flag on the command line precedes
the file.
"""

import argparse
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.cli.parser import Parser
from t2t_keras.data.text_files import read_text
from t2t_keras.data.toml_text import parse_toml
from t2t_keras.entry_points import counterpart
from t2t_keras.errors import UserError, did_you_mean, short_repr


def read_config(
    path: str, command: str, commands: Collection[str]
) -> dict[str, object]:
    """Returns the values of a file for a command, by the names of flags.

    Args:
        path: the file.
        command: the command.
        commands: the names of all commands.

    Raises:
        UserError: the file cannot be read, or is neither TOML nor YAML.
    """
    content = _parsed(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} must have lines such as `problem: translate_text`")
    values: dict[str, object] = {}
    for key, value in content.items():
        if not (key in commands and isinstance(value, dict)):
            values[_flag_name(key)] = value
    of_command = content.get(command)
    if isinstance(of_command, dict):
        for key, value in of_command.items():
            values[_flag_name(key)] = value
    return values


def _flag_name(key: object) -> str:
    """Returns a key as flags are written; YAML has keys that are not strings."""
    return str(key).replace("-", "_")


def _parsed(path: str) -> object:
    """Returns the content of a file in TOML or YAML."""
    suffix = Path(path).suffix
    if suffix not in (".toml", ".yaml", ".yml"):
        raise UserError(f"--config: {path} must end in .toml, .yaml or .yml")
    text = read_text(path)
    if suffix != ".toml":
        from t2t_keras.data.yaml_text import parse_yaml

        return parse_yaml(text, path)
    return parse_toml(text, path)


def apply_config(
    path: str,
    values: Mapping[str, object],
    parser: Parser,
    typed: Collection[str],
    other_flags: Callable[[], Collection[str]],
) -> None:
    """Makes the values of a file the defaults of a parser.

    Args:
        path: the file.
        values: its values by the names of flags.
        parser: the parser of the command.
        typed: the names in the namespace that the command line gives.
        other_flags: returns the flags of the other commands.

    Raises:
        UserError: a flag does not take its value.
        SystemExit: there are names that are flags of no command; it has printed what
            to use instead.
    """
    if unknown := _unknown_names(values, parser, other_flags):
        parser.refuse(f"{path}: {sentence}" for sentence in unknown)
    left_out = set(typed)
    for group in parser._mutually_exclusive_groups:
        names = {action.dest for action in group._group_actions}
        if names & left_out:
            left_out |= names
    new_defaults = argparse.Namespace()
    for name, value in values.items():
        if name == "config":
            raise UserError(f"{path}: a file cannot name another one in config")
        action = parser._option_string_actions.get(f"--{name}")
        if action and action.dest not in left_out and value is not None:
            _set(path, name, value, parser, action, new_defaults)
    for group in parser._mutually_exclusive_groups:
        if any(hasattr(new_defaults, action.dest) for action in group._group_actions):
            group.required = False
    for action in parser._actions:
        if hasattr(new_defaults, action.dest):
            action.required = False
    # A default of a positional argument would be read as a word of the command line.
    positional = [action for action in parser._actions if not action.option_strings]
    defaults = [action.default for action in positional]
    parser.set_defaults(**vars(new_defaults))
    for action, default in zip(positional, defaults, strict=True):
        action.default = default


def _unknown_names(
    values: Mapping[str, object],
    parser: Parser,
    other_flags: Callable[[], Collection[str]],
) -> list[str]:
    """Returns a sentence for each name that is a flag of no command."""
    command = parser.prog.split()[-1]
    sentences: list[str] = []
    for name, value in values.items():
        flag = f"--{name}"
        if flag in parser._option_string_actions or flag in other_flags():
            continue
        if counterparts := _counterparts(command, name, value):
            sentences += counterparts
            continue
        names = {flag.lstrip("-") for flag in other_flags() if flag[:2] == "--"}
        sentences.append(f"there is no flag '{name}'{did_you_mean(name, names)}")
    return sentences


def _counterparts(command: str, name: str, value: object) -> list[str]:
    """Returns what to use instead of a name of another toolkit, or of its keys.

    OpenNMT-tf's files have tables, such as `data`.
    """
    if advice := counterpart(command, f"--{name}", str(value)):
        return [advice]
    keys = value if isinstance(value, dict) else {}
    sentences = [counterpart(command, f"--{key}", str(keys[key])) for key in keys]
    return list(filter(None, sentences))


def _set(
    path: str,
    name: str,
    value: object,
    parser: Parser,
    action: argparse.Action,
    namespace: argparse.Namespace,
) -> None:
    """Sets what a flag does, with a value of the file."""
    flag = f"--{name}"
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UserError(f"{path}: {name} must be true or false")
        if value:
            action(parser, namespace, [], flag)
        return
    texts = [
        flag_text(item) for item in (value if isinstance(value, list) else [value])
    ]
    if any("\0" in text for text in texts):
        raise UserError(f"{path}: {name} has a NUL character")
    is_repeated = isinstance(action, argparse._AppendAction)
    if isinstance(value, list) and action.nargs is None and not is_repeated:
        raise UserError(f"{path}: {name} takes one value, not {short_repr(value)}")
    try:
        converted = [_checked(parser, action, text) for text in texts]
    except argparse.ArgumentError as error:
        raise UserError(f"{path}: {name}: {error.message}") from None
    if action.nargs is not None:
        action(parser, namespace, converted, flag)
        return
    for item in converted:
        action(parser, namespace, item, flag)


def _checked(parser: Parser, action: argparse.Action, text: str) -> Any:
    """Returns the value of a text; raises `ArgumentError`."""
    value = parser._get_value(action, text)
    parser._check_value(action, value)
    return value


def flag_text(value: object) -> str:
    """Returns the value of a flag as it is written on the command line."""
    if isinstance(value, dict):
        return ",".join(f"{key}={_text_in_pair(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _text_in_pair(value: object) -> str:
    """Returns a value of `K=V,K=V`; lists stand in [...]."""
    if isinstance(value, list):
        return f"[{','.join(map(flag_text, value))}]"
    if isinstance(value, dict):  # such as a glossary
        return f"[{flag_text(value)}]"
    return flag_text(value)


def typed_names(parser: Parser, words: list[str]) -> set[str]:
    """Returns the names in the namespace that a command line gives.

    Args:
        parser: a parser of the command, which is of no use afterwards.
        words: the command line.
    """
    for action in parser._actions:
        action.required = False
        action.default = argparse.SUPPRESS
    for group in parser._mutually_exclusive_groups:
        group.required = False
    values, _ = parser.parse_known_args(words)
    return set(vars(values))
