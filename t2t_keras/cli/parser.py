"""The parser of a command: positional arguments, short help, errors of one sentence."""

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NoReturn

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
