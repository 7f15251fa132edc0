"""Command lines and the help of a command.

cyclopts binds the words of a command line and the values of a `--config` file to
flags, and completes them in shells. The values are converted and checked as options
are. The help is printed here: for it, cyclopts is not imported.
"""

import contextlib
import dataclasses
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from t2t_keras import registry
from t2t_keras.cli.command import Command, FlagGroup, FlagsOf
from t2t_keras.cli.flags import ARGUMENTS, OPTIONS, Flag, flag_of, flags_of
from t2t_keras.console import two_columns
from t2t_keras.entry_points import counterpart, unknown_name
from t2t_keras.errors import UserError, quantity
from t2t_keras.options import OptionValues, split_pairs
from t2t_keras.usr_dir import load_usr_dir

if TYPE_CHECKING:
    import cyclopts
    from cyclopts import App, Token


class UsageErrors(Exception):
    """Mistakes in a command line: `args` are sentences that name no program."""


class CommandLine:
    """Parses the command lines of one command.

    Attributes:
        prog: the program and the command.
        parts: the dataclasses with its flags.
        command: the first of them that is a command.
        flags: its flags by the names of parameters.
    """

    def __init__(self, name: str, *parts: type) -> None:
        """Initializes the object.

        Args:
            name: the name of the command.
            *parts: the dataclasses with its flags: its extensions, the command itself,
                and what plugins add.
        """
        self.prog = f"t2t {name}"
        self.parts = parts
        self.command = next(part for part in parts if issubclass(part, Command))
        self.flags: dict[str, Flag] = {}
        for part in parts:
            for flag in flags_of(part):
                self.flags.setdefault(flag.name, flag)

    def names(self) -> set[str]:
        """Returns every way to write a flag, with hyphens."""
        return {name for flag in self.flags.values() for name in flag.names}

    def parse(
        self,
        words: Sequence[str],
        file: str,
        file_values: Mapping[str, Sequence[object]],
    ) -> OptionValues:
        """Returns the values that are given, by the names of flags.

        Args:
            words: the words after the command.
            file: the path of the `--config` file; "": there is none.
            file_values: the values of the file, by the names of flags, which the words
                precede; of `K=V,K=V`, each key does.

        Raises:
            UserError: a value is impossible.
            UsageErrors: a word or a required value is missing, or superfluous.
        """
        import cyclopts

        typed = {word.partition("=")[0] for word in words if word.startswith("--")}
        by_flag = [
            flag.name for flag in self.flags.values() if typed.intersection(flag.names)
        ]
        present: set[str] = set()

        def read_file(app: "App", commands: object, arguments: Any) -> None:
            for argument in arguments:
                name = argument.field_info.name
                in_file = file_values.get(name, ())
                if not argument.tokens:
                    for token in _tokens(file, name, in_file):
                        argument.append(token)
                elif in_file and self.flags[name].takes_pairs:
                    word = argument.tokens[-1]
                    pairs = split_pairs(str(in_file[0]), f"{file}: {name}: ")
                    pairs |= split_pairs(word.value, f"--{name}: ")
                    text = ",".join(f"{key}={value}" for key, value in pairs.items())
                    argument.tokens[-1] = word.evolve(value=text)
                if argument.tokens:
                    present.add(name)

        def bind(without_place: Collection[str]) -> OptionValues:
            app = self.app(without_place, config=[read_file])
            _, bound, _ = app.parse_args(
                self._separated(words), print_error=False, exit_on_error=False
            )
            return dict(bound.arguments)

        by_file = [x.name for x in self._listed() if x.is_positional]
        by_file = [name for name in by_file if name in file_values]
        try:
            for count in range(len(by_file), 0, -1):
                with contextlib.suppress(cyclopts.UnusedCliTokensError):
                    return bind([*by_flag, *by_file[:count]])
            return bind(by_flag)  # the words precede the file
        except cyclopts.CycloptsError as error:
            required = [flag for flag in self._listed() if flag.is_required]
            missing = [flag for flag in required if flag.name not in present]
            flags = [self.flags[name] for name in by_flag]
            raise UsageErrors(self._sentence(error, missing, flags)) from None

    def command_with(
        self,
        given_values: OptionValues,
        command: type[Command],
        **extensions: type[Command],
    ) -> Command:
        """Returns a command with the values that are given.

        Args:
            given_values: the result of `parse`.
            command: the command.
            **extensions: the extensions that take its place, each if the flag of this
                name is given.

        Raises:
            UserError: an option is given by its flag and among the keys of another.
            UsageErrors: a flag belongs to an extension that is not asked for.
        """
        asked_for = [extensions[flag] for flag in extensions if flag in given_values]
        command = [command, *asked_for][-1]
        values: OptionValues = {"given_flags": frozenset(given_values)}
        further: OptionValues = {}
        names = {field.name for field in dataclasses.fields(command)}
        for name, value in given_values.items():
            flag = self.flags[name]
            if flag.holder:
                collected = values.setdefault(flag.holder, {})
                is_keys = flag.field.metadata.get("is_keys")
                pairs = value if is_keys else {name: value}
                for twice in collected.keys() & pairs.keys():
                    raise UserError(f"--{twice} is in --{name} as well; leave out one")
                collected.update(pairs)
            elif name in names:
                values[name] = value
            elif issubclass(flag.options, Command):
                askers = " or ".join(f"--{flag}" for flag in extensions)
                raise UsageErrors(f"--{name} has no effect without {askers}")
            else:
                further[name] = value
        for part in self.parts:
            if not issubclass(part, Command):
                values["plugin_values"] = part(**further)
        return command(**values)

    def own_words(self, words: Sequence[str]) -> list[str]:
        """Returns the words before "--" and before those of another command."""
        words = self._separated(words)
        return words[: words.index("--")] if "--" in words else words

    def _separated(self, words: Sequence[str]) -> list[str]:
        """Returns the words, with "--" before those that belong to another command.

        These begin with the first that is not a flag or its value.
        """
        has_remainder = any(
            flag.field.metadata.get("remainder") for flag in self.flags.values()
        )
        if not has_remainder:
            return list(words)
        index = 0
        while index < len(words) and words[index].startswith("-"):
            if words[index] == "--":
                return list(words)
            flag = self.flags.get(words[index].lstrip("-"))
            index += 2 if flag and flag.hint is not bool else 1
        return [*words[:index], "--", *words[index:]]

    def _listed(self) -> list[Flag]:
        """Returns the flags, the positional ones first."""
        return sorted(self.flags.values(), key=lambda flag: not flag.is_positional)

    def _sentence(
        self,
        error: "cyclopts.CycloptsError",
        missing: Sequence[Flag],
        by_flag: Sequence[Flag],
    ) -> str:
        """Returns the sentence for a mistake that cyclopts has found.

        Args:
            error: the mistake.
            missing: the flags that must be given and are not.
            by_flag: the flags whose value does not stand by place.
        """
        import cyclopts

        argument = error.argument
        flag = self.flags.get(argument.field_info.name) if argument else None
        if isinstance(error, cyclopts.MissingArgumentError) and argument and flag:
            if argument.tokens or error.keyword:
                return f"--{flag.word} needs a value"
            labels = [x.label for x in missing]
            listed = " and ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))
            what = "what they are" if labels[1:] else "what it is"
            return f"give {listed}; `{self.prog} --help` says {what}"
        if isinstance(error, cyclopts.RepeatArgumentError):  # only of `K=V,K=V`
            word = error.token.keyword if error.token else "a flag"
            return f"{word} is given twice; join its values: {word} K=V,K=V"
        if isinstance(error, cyclopts.CoercionError) and flag and error.token:
            if flag.hint is bool:
                return f"--{flag.word} takes no value; write it alone, or leave it out"
            try:
                flag.convert([error.token])
            except UserError as mistake:
                return str(mistake)
        if isinstance(error, cyclopts.UnusedCliTokensError):
            sentence = f"unrecognized arguments: {' '.join(error.unused_tokens or ())}"
            for x in by_flag:
                if x.is_positional:
                    return f"{sentence}; {x.label} is already given by --{x.word}"
            hint = self.command.words_hint
            return f"{sentence}; {hint}" if hint else sentence
        text = " ".join(str(error).split()).rstrip(".")
        return text[:1].lower() + text[1:]

    def app(
        self,
        without_place: Collection[str] = (),
        config: Sequence[Callable[..., None]] = (),
    ) -> "App":
        """Returns the cyclopts application.

        Args:
            without_place: the flags whose value does not stand without the flag.
            config: functions that append tokens to arguments.
        """
        from cyclopts import App

        parameters = []
        for flag in self._listed():
            by_place = flag.is_positional and flag.name not in without_place
            parameters.append(_parameter(flag, by_place))

        def run(**values: object) -> None:
            """Takes the place of the command, which runs after the parsing."""

        parameters.sort(key=lambda parameter: parameter.kind)  # those by place first
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app = App(
            name=self.prog.split()[-1],
            help=self.command.summary,
            help_flags=(),
            version_flags=(),
            config=tuple(config),
        )
        app.default(run)
        return app

    def _groups(self) -> list[FlagGroup]:
        """Returns the groups of the help: arguments, options, others, further ones."""
        groups = dict.fromkeys([ARGUMENTS, OPTIONS])
        groups |= dict.fromkeys(flag.group for flag in self.flags.values())
        return sorted(groups, key=lambda group: group.is_further)

    def _usage(self) -> str:
        """Returns the command and what it must be given."""
        words = [self.prog]
        for flag in self._listed():
            if flag.field.metadata.get("remainder"):
                words += ["[flags]", flag.metavar]
            elif flag.is_positional:
                name = f"{flag.metavar} ..." if flag.is_list else flag.metavar
                words.append(name if flag.is_required else f"[{name}]")
            elif flag.is_required:
                words += [f"--{flag.name}", flag.metavar]
        if "[flags]" not in words:
            words.append("[flags]")
        return self.command.usage or " ".join(words)

    def print_help(self, show_all: bool) -> None:
        """Prints the help.

        Args:
            show_all: whether the groups of further flags are in it.
        """
        width = shutil.get_terminal_size().columns
        usage = f"usage: {self._usage()}"
        wrapped = textwrap.fill(usage, width - 2, subsequent_indent="  ")
        print(usage if "\n" in usage else wrapped)
        print(f"\n{self.command.summary}")
        for group in self._groups():
            flags = [flag for flag in self._listed() if flag.group == group]
            if not flags or (group.is_further and not show_all):
                continue
            print(f"\n{group.title}:")
            if group.help:
                text = textwrap.fill(group.help, width - 4)
                print(textwrap.indent(text, "  ") + "\n")
            print(two_columns({flag.title: flag.help() for flag in flags}))
        parts = self._key_lists()
        if show_all:
            for title, text in parts.items():
                print(f"\n{title}:\n{text}")
            return
        further = [flag for flag in self.flags.values() if flag.group.is_further]
        if further:
            options = quantity(len(further), "further options")
            print(f"\n`{self.prog} --help-all` has {options}.")

    def _key_lists(self) -> dict[str, str]:
        """Returns the descriptions of the keys of `K=V,K=V` flags, by title."""
        lists: dict[str, str] = {}
        for field in dataclasses.fields(self.command):
            part = field.metadata.get("flags_of")
            if isinstance(part, FlagsOf) and part.keys:
                rows = {}
                left_out = {*part.refused}.union(*part.groups.values())
                for option in dataclasses.fields(part.options):
                    if option.name not in left_out:
                        flag = flag_of(part.options, option, OPTIONS)
                        rows[option.name] = flag.help()
                lists[f"keys of --{part.keys}"] = part.rule + two_columns(rows)
        return lists

    def require_known(self, words: Sequence[str], mistake: UserError | None) -> None:
        """Refuses unknown flags: says for each what to use instead.

        Args:
            words: the words after the command.
            mistake: why the flags of the problem are unknown; None: they are known.

        Raises:
            UsageErrors: there are such flags.
        """
        sentences: list[str] = []
        own_names = sorted(name[2:] for name in self.names() if name.startswith("--"))
        command = self.prog.split()[-1]
        for word, value in self.unknown_flags(words):
            if hint := self.command.flag_hints.get(word.lstrip("-").replace("-", "_")):
                sentences.append(f"there is no flag {word}; {hint}")
            elif mistake:  # it may be one of the problem's flags
                sentences.append(counterpart(command, word, value) or str(mistake))
            else:
                sentences.append(unknown_name(command, word, own_names, value, "flag"))
        if sentences:
            raise UsageErrors(*sentences, *([str(mistake)] if mistake else []))

    def unknown_flags(self, words: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yields the flags that the command does not have, with their values or ""."""
        names = self.names()
        words = self.own_words(words)
        for index, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if not re.match("--?[A-Za-z]", flag) or flag in names:
                continue
            if not equals and index + 1 < len(words):
                value = words[index + 1]
            yield flag, value


def _tokens(path: str, name: str, values: Sequence[object]) -> "Iterator[Token]":
    """Yields the values of a file as cyclopts takes them."""
    from cyclopts import Token

    for index, value in enumerate(values):
        if value is True:
            yield Token(keyword=name, source=path, implicit_value=True)
        elif value is not False:
            yield Token(keyword=name, source=path, value=str(value), index=index)


def _parameter(flag: Flag, by_place: bool) -> inspect.Parameter:
    """Returns the parameter from which cyclopts makes a flag."""
    from cyclopts import Parameter

    settings: dict[str, Any] = {}
    annotation: Any = bool
    if flag.hint is not bool:
        # cyclopts also asks pydantic about values, which `Flag.convert` has checked.
        annotation = tuple[Any, ...] if flag.is_list else Any

        def convert(type_: object, tokens: "Sequence[Token]") -> Any:
            return flag.convert(tokens)

        settings = {"converter": convert}
        if flag.is_list:
            settings["consume_multiple"] = (1, None)
        if flag.choices:
            settings["choices"] = flag.choices
        if completer := _COMPLETERS.get(flag.name):
            settings["completer"] = completer
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameter = Parameter(
        name=flag.names,
        help=flag.help(),
        metavar=flag.metavar or None,
        negative=(),
        allow_repeating=not flag.takes_pairs,
        **settings,
    )
    default: Any = () if flag.is_list else None
    if flag.hint is bool:
        default = False
    if flag.is_required:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        flag.name,
        kinds[by_place],
        default=default,
        annotation=Annotated[annotation, parameter],
    )


def _registered(list_names: Callable[[], Collection[str]]) -> Callable[..., list[str]]:
    """Returns a function that completes registered names, also those of --usr_dir."""

    def names(context: Any) -> list[str]:
        try:
            usr_dir = context["usr_dir"].raw
        except KeyError:
            usr_dir = None
        if usr_dir:
            load_usr_dir(usr_dir)
        names = list(list_names())
        prefix = context.incomplete
        reversed_names = [f"{name}_rev" for name in names if prefix.startswith(name)]
        return names + (reversed_names if list_names is registry.list_problems else [])

    return names


_COMPLETERS = {
    "problem": _registered(registry.list_problems),
    "hparams_set": _registered(registry.list_hparams),
}
