"""`--config FILE`: the values of flags, in TOML or YAML.

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

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from t2t_keras.cli.flags import Flag
from t2t_keras.cli.parsing import UsageErrors
from t2t_keras.entry_points import counterpart, unknown_name
from t2t_keras.errors import UserError, misspelt_names, short_repr
from t2t_keras.files.text_files import read_text


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
    return {name: value for name, value in values.items() if value is not None}


def _flag_name(key: object) -> str:
    """Returns a key as flags are written; YAML has keys that are not strings."""
    return str(key).replace("-", "_")


def _parsed(path: str) -> object:
    """Returns the content of a file in TOML or YAML."""
    suffix = Path(path).suffix
    if suffix not in (".toml", ".yaml", ".yml"):
        raise UserError(f"--config: {path} must end in .toml, .yaml or .yml")
    from t2t_keras.files.config_files import parse_toml, parse_yaml

    parse = parse_toml if suffix == ".toml" else parse_yaml
    return parse(read_text(path), path)


def flag_values(
    path: str, values: Mapping[str, object], flags: Mapping[str, Flag]
) -> dict[str, list[object]]:
    """Returns the values of a file for the flags of a command, as words or `True`.

    Args:
        path: the file.
        values: its values, by the names of flags.
        flags: the flags of the command; values of others are left out.

    Raises:
        UserError: a flag does not take as many values, or such a value.
    """
    by_name = {name[2:]: flag for flag in flags.values() for name in flag.names}
    words: dict[str, list[object]] = {}
    for name, value in values.items():
        if name == "config":
            raise UserError(f"{path}: a file cannot name another one in config")
        if flag := by_name.get(name):
            words[flag.name] = _words(path, flag, name, value)
    return words


def _words(path: str, flag: Flag, name: str, value: object) -> list[object]:
    """Returns a value of a file as the words after a flag."""
    if flag.hint is bool:
        if not isinstance(value, bool):
            raise UserError(f"{path}: {name} must be true or false")
        return [value]
    if isinstance(value, list) and not flag.is_list:
        raise UserError(f"{path}: {name} takes one value, not {short_repr(value)}")
    texts: list[object] = []
    for item in value if isinstance(value, list) else [value]:
        texts.append(flag_text(item))
        if "\0" in flag_text(item):
            raise UserError(f"{path}: {name} has a NUL character")
    return texts


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


def require_known_names(
    path: str,
    values: Mapping[str, object],
    command: str,
    own_names: Collection[str],
    other_names: Callable[[], Collection[str]],
    commands: Collection[str],
) -> None:
    """Refuses names that are flags of no command, all at once.

    For a table of another toolkit, each of its keys has a sentence.

    Args:
        path: the file.
        values: its values, by the names of flags.
        command: the command.
        own_names: the flags of the command.
        other_names: returns the flags of the other commands.
        commands: the names of all commands.

    Raises:
        UsageErrors: there are such names; says what to use instead.
    """
    sentences: list[str] = []
    for name, value in values.items():
        if name in own_names or name in other_names():
            continue
        names = sorted(other_names())
        noun = "flag"
        answers: list[str] = []
        if isinstance(value, dict):
            noun = "table"
            names += commands
            if not misspelt_names(name, names):  # such as OpenNMT-tf's table `data`
                for key in value:
                    if key not in names:
                        answers.append(counterpart(command, str(key), str(value[key])))
        fallback = unknown_name(command, name, names, str(value), noun)
        sentences += list(filter(None, answers)) or [fallback]
    if sentences:
        raise UsageErrors(*(f"{path}: {sentence}" for sentence in sentences))
