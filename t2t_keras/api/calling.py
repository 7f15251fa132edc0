"""Calls of a command from Python, and what they return.

The values are checked as on the command line; messages name arguments.
"""

import contextlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.checking import (
    TypeMismatchError,
    require_type,
    resolved_hints,
    validated,
)
from t2t_keras.cli.command import Command
from t2t_keras.cli.flags import Flag, flags_of
from t2t_keras.cli.program import find_command
from t2t_keras.console import columns, rewriting
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError, flags_as_arguments, printable, require_local
from t2t_keras.options import OptionValues, check_options, require_known
from t2t_keras.usr_dir import load_usr_dir


class Result(dict[str, Any]):
    """What a command returns: the object that its `--json` prints.

    It is shown as the command shows it, `print(result)` included.
    """

    def __init__(self, values: Mapping[str, Any], command: Command) -> None:
        super().__init__(values)
        self._command = command

    def __repr__(self) -> str:
        text = self._command.show(dict(self))
        return printable(Wording(type(self._command))(text))


class Table:
    """Records of a run in columns; what `Run.history` returns without pandas.

    Like a DataFrame, `table["step"]` is a column, `len(table)` the number of rows, and
    the iteration yields the names of the columns.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self.records = [dict(record) for record in records]
        names = dict.fromkeys(name for record in self.records for name in record)
        self.columns = list(names)

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.columns:
            raise KeyError(name)
        return [record.get(name) for record in self.records]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        if not self.records:
            return "an empty table"
        head, tail = self.records[:-_SHOWN][:_SHOWN], self.records[-_SHOWN:]
        lines = columns(
            [
                {name: _cell(record.get(name)) for name in self.columns}
                for record in [*head, *tail]
            ]
        ).splitlines()
        hidden = len(self.records) - len(head) - len(tail)
        if hidden:
            lines.insert(1 + len(head), f"... {hidden:,} rows ...")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        return f"<pre>{html.escape(repr(self))}</pre>"


_SHOWN = 5  # rows of the head and of the tail of a table


def _cell(value: object) -> object:
    return "" if value is None else value


def call(name: str, arguments: Mapping[str, Any]) -> Result:
    """Runs a command, and returns its result.

    Args:
        name: the name of the command.
        arguments: the values of its fields, of which None and defaults count as not
            given; "decoding", the options of `DecodingOptions`; and "flags", those that
            a problem adds, see `Command.plugin_flags`.

    Raises:
        UserError: there is no such command, or a value is impossible; whatever the
            command refuses.
    """
    command_class = find_command(name)
    if command_class is None:
        raise UserError(f"the plugin with `t2t {name}` is not installed")
    with argument_names(command_class):
        command = _command(name, command_class, arguments)
        if usr_dir := getattr(command, "usr_dir", None):
            load_usr_dir(usr_dir)
        if command.needs_tensorflow():
            from t2t_keras.model.backend import require_tensorflow

            require_tensorflow()
        command.check()
        return Result(command.run(), command)


def _command(
    name: str, command: type[Command], arguments: Mapping[str, Any]
) -> Command:
    """Returns the command with its arguments."""
    field_flags = {flag.name: flag for flag in flags_of(command) if not flag.holder}
    values = dict(arguments)
    decoding = values.pop("decoding", {})
    flags = values.pop("flags", {})
    fields: OptionValues = {}
    words = [name]
    for key, value in values.items():
        flag = field_flags[key]
        default = flag.field.default
        is_default = type(value) is type(default) and value == default
        if flag.is_required or not (value is None or is_default):
            fields[key] = _argument(flag, value)
            items = fields[key] if flag.is_list else [fields[key]]
            words += [f"--{flag.word}", *map(str, items)]
    given_flags = frozenset({*fields, *decoding, *flags})
    if part := command.plugin_flags(fields.get("problem"), fields.get("usr_dir")):
        require_known(part, flags, f"{name}: ")
        check_options(part, flags)
        fields["plugin_values"] = part(**flags)
    elif flags:
        require_known(command, flags, f"{name}: ")
    if decoding:
        others = values.keys() - decoding.keys()
        prefix = f"{name}: "
        require_known(DecodingOptions, decoding, prefix, "decode_hparams", others)
        fields["decoding"] = DecodingOptions.checked(decoding)
    return command(**fields, given_flags=given_flags, words=tuple(words))


def _argument(flag: Flag, value: Any) -> Any:
    """Returns the value of an argument as the flag's field has it.

    Raises:
        UserError: it is impossible.
    """
    name = flag.name
    if flag.is_list:
        values = [value] if isinstance(value, str | Path) else value
        if not isinstance(values, list | tuple):
            require_type(name, list[str], values)
        return tuple(_text(name, item) for item in values)
    if flag.hint is str:
        text = value if flag.field.metadata.get("is_text") else _text(name, value)
        require_type(name, str, text)
        parse = flag.field.metadata.get("parse")
        if not parse:
            return text
        try:
            return parse(text)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
    check_options(flag.options, {name: value})
    try:
        return validated(resolved_hints(flag.options)[name], value, name)
    except TypeMismatchError as error:
        raise UserError(str(error)) from None


def _text(name: str, value: Any) -> str:
    """Returns a name, a path or a checkpoint as text, see `Flag.convert`."""
    hint = str | int | Path if name == "checkpoint" else str | Path
    require_type(name, hint, value)
    text = str(value)
    if not text:
        raise UserError(f"{name} is empty; give a value, or leave it out")
    require_local(name, text)
    return text


class Wording:
    """Names arguments in place of flags, see `flags_as_arguments`.

    Args:
        command: the command, some of whose arguments have other names than its flags.
    """

    def __init__(self, command: type[Command] | None = None) -> None:
        flags = flags_of(command) if command else []
        self._names = {flag.word: flag.name for flag in flags}
        self._switches = {flag.word for flag in flags if flag.hint is bool}
        self._positional = {x.metavar: x.name for x in flags if x.is_positional}

    def __call__(self, text: str) -> str:
        """Returns a text with the names of arguments."""
        parts = flags_as_arguments(text, self._names, self._switches).split("`")
        for metavar, name in self._positional.items():
            word = re.compile(rf"(?<![\w/.=-]){metavar}(?![\w/.-])")
            parts[::2] = [word.sub(name, part) for part in parts[::2]]
        return "`".join(parts)


@contextlib.contextmanager
def argument_names(command: type[Command] | None = None) -> Iterator[None]:
    """Names arguments in place of flags, in errors and in what is printed.

    Args:
        command: see `Wording`.
    """
    wording = Wording(command)
    try:
        with rewriting(wording):
            yield
    except UserError as error:
        error.args = (wording(str(error)),)
        raise
