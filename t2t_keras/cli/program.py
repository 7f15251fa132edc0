"""The `t2t` program: parses the command line, runs a command, returns an exit code.

`--config FILE` gives flags by name, in TOML or YAML:

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
import contextlib
import errno
import functools
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import argcomplete

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
from t2t_keras.cli.command import (
    Command,
    HelpAll,
    Parser,
    extensions,
    positional_first,
    utf8,
)
from t2t_keras.console import busy, say_next, two_columns
from t2t_keras.devices import keep_compiled_programs
from t2t_keras.entry_points import counterpart, load_plugin, load_plugins, plugin_names
from t2t_keras.errors import (
    UserError,
    did_you_mean,
    install_command,
    misspelt_names,
    require_local,
    short_repr,
)
from t2t_keras.files.text_files import read_text
from t2t_keras.tensorflow_import import diverted_stderr
from t2t_keras.usr_dir import load_usr_dir


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
    from t2t_keras.files.config_files import parse_toml, parse_yaml

    parse = parse_toml if suffix == ".toml" else parse_yaml
    return parse(read_text(path), path)


def apply_config(
    path: str,
    values: Mapping[str, object],
    parser: Parser,
    typed: Collection[str],
    other_flags: Callable[[], Collection[str]],
    commands: Collection[str],
) -> None:
    """Makes the values of a file the defaults of a parser.

    Args:
        path: the file.
        values: its values by the names of flags.
        parser: the parser of the command.
        typed: the names in the namespace that the command line gives.
        other_flags: returns the flags of the other commands.
        commands: the names of all commands.

    Raises:
        UserError: a flag does not take its value.
        SystemExit: there are names that are flags of no command; it has printed what
            to use instead.
    """
    if unknown := _unknown_names(values, parser, other_flags, commands):
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
    commands: Collection[str],
) -> list[str]:
    """Returns a sentence for each name that is a flag of no command.

    A misspelt name of this project takes precedence over another toolkit's name.
    """
    command = parser.prog.split()[-1]
    sentences: list[str] = []
    for name, value in values.items():
        flag = f"--{name}"
        if flag in parser._option_string_actions or flag in other_flags():
            continue
        names = [flag.lstrip("-") for flag in other_flags() if flag[:2] == "--"]
        noun = "flag"
        if isinstance(value, dict):
            names += commands
            noun = "table"
        is_misspelt = bool(misspelt_names(name, names))
        found = [] if is_misspelt else _counterparts(command, name, value, names)
        hint = did_you_mean(name, names)
        sentences += found or [f"there is no {noun} '{name}'{hint}"]
    return sentences


def _counterparts(
    command: str, name: str, value: object, own_names: Collection[str]
) -> list[str]:
    """Returns what to use instead of a name of another toolkit, or of its keys.

    OpenNMT-tf's files have tables, such as `data`. Keys with names of this project are
    skipped.
    """
    if advice := counterpart(command, f"--{name}", str(value)):
        return [advice]
    if not isinstance(value, dict):
        return []
    keys = [key for key in value if key not in own_names]
    sentences = [counterpart(command, f"--{key}", str(value[key])) for key in keys]
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


def _command_names() -> list[str]:
    """Returns the names of all commands, without importing those of plugins."""
    return [*CORE, *plugin_names("commands")]


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
        try:
            values = read_config(early_flags.config, name, _command_names())
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

        apply_config(
            early_flags.config, values, parser, typed, other_flags, _command_names()
        )
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
        hint = did_you_mean(flag.removeprefix("--"), _flag_names(parser), "--{}")
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
    hint = did_you_mean(name, _command_names(), "{}")
    parser.error(f"there is no command '{name}'{hint} (`t2t --help` lists them)")


def _complete() -> None:
    """Answers the shell's request for completions, and ends the program."""
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
    names = _flag_names(parser)
    for flag, value in _unknown_flags(words, parser):
        name = flag.removeprefix("--")
        is_misspelt = name != flag and misspelt_names(name, names)
        if not is_misspelt and (advice := counterpart(command, flag, value)):
            messages.append(advice)
        elif mistake and name != flag:
            messages.append(str(mistake))  # it may be one of the problem's flags
        elif name != flag:
            hint = did_you_mean(name, names, "--{}")
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


def _flag_names(parser: Parser) -> list[str]:
    """Returns the flags without the hyphens, which would make any two similar."""
    return [flag.removeprefix("--") for flag in parser._option_string_actions]


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


# Files that exist if there is a driver for NVIDIA GPUs.
_NVIDIA = ("/dev/nvidia0", "/proc/driver/nvidia")
_UNUSED_GPU = (
    "TensorFlow cannot use the NVIDIA GPU of this machine, and the CPU is used; "
    "{install} or mend the driver (TF_CPP_MIN_LOG_LEVEL=0 shows more), or "
    "set CUDA_VISIBLE_DEVICES=-1"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        0; 2 after a user's mistake; by the shell's convention, 130 after Ctrl-C, 143
        after SIGTERM and 129 after SIGHUP in training, and 141 after SIGPIPE on
        standard output.
    """
    argv = sys.argv[1:] if argv is None else argv
    command = ""
    selected: Command | None = None
    try:
        _require_standard_streams()
        command = f" {argv[0]}" if argv and not argv[0].startswith("-") else ""
        selected, args = parse(argv)
        _run(args, selected)
        return 0
    except UserError as error:
        return _fail(f"t2t{command}: error: {error}", 2)
    except BrokenPipeError:
        # Python flushes standard output at exit: discard that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _fail(f"t2t{command}: error: the disk is full: {error.strerror}", 2)
        if error.filename is None:
            raise
        return _fail(f"t2t{command}: error: {error.filename}: {error.strerror}", 2)
    except KeyboardInterrupt as interrupt:
        advice = list(interrupt.args)
        if not advice and selected is not None and selected.resumes:
            advice = ["run the same command to continue"]
        return _fail("; ".join([f"t2t{command}: interrupted", *advice]), 130)


def _require_standard_streams() -> None:
    """Refuses a closed standard output.

    Closed standard input and standard error are opened to /dev/null, because the next
    file to be opened would get their descriptors.
    """
    is_closed = sys.stdout is None
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (until the end)
    if is_closed:
        raise UserError(
            "standard output is closed; redirect it to a file or to /dev/null"
        )


def _run(args: argparse.Namespace, command: Command) -> None:
    """Runs the command; standard output gets its result only."""
    # A process that evaluates may use the GPU of one that trains.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    needs_tensorflow = command.uses_tensorflow
    if callable(needs_tensorflow):
        with contextlib.redirect_stdout(sys.stderr):  # of a user's definitions
            needs_tensorflow = needs_tensorflow(args)
    if needs_tensorflow and backend != "tensorflow":
        raise UserError(
            f"KERAS_BACKEND is '{backend}', and this needs TensorFlow: unset it or set "
            "it to tensorflow"
        )
    with (
        contextlib.redirect_stdout(sys.stderr),  # whatever a library prints
        busy(command.waiting) if command.waiting else contextlib.nullcontext(),
    ):
        usr_dir = getattr(args, "usr_dir", None) or ""
        # Its files may import TensorFlow.
        is_early = needs_tensorflow and os.path.isdir(usr_dir)
        if is_early:
            _import_tensorflow(command.decodes_files(args))
        if usr_dir:
            load_usr_dir(usr_dir)
        command.check(args)
        if needs_tensorflow and not is_early:
            _import_tensorflow(command.decodes_files(args))
        result = command.run(args)
    text = json.dumps(result)
    if not args.json:
        text = command.show(command.abridge(result, args))
    if text:
        print(text, flush=True)
    if not args.json:
        say_next(command.next_command(args))


def _import_tensorflow(decodes_files: bool) -> None:
    """Imports TensorFlow without its warnings about a missing GPU.

    C++ code prints them, the last one when devices are listed, and no setting mutes
    them all: so standard error is diverted. If there is a GPU that cannot be used, they
    are printed.

    Args:
        decodes_files: see `Command`.
    """
    with busy("loading TensorFlow"), diverted_stderr() as remarks:
        import tensorflow as tf

        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        keep_compiled_programs()
        if not has_gpu:
            # TensorFlow keeps freed memory for reuse. malloc would return large blocks
            # to the system, and every step would have the page faults again.
            os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
        is_given = "TF_NUM_INTRAOP_THREADS" in os.environ
        if decodes_files and not has_gpu and not is_given:
            from t2t_keras.decoding.batches import MAX_PARALLEL_BATCHES

            threads = max(1, (os.cpu_count() or 1) // MAX_PARALLEL_BATCHES)
            with contextlib.suppress(RuntimeError):  # its threads have begun already
                tf.config.threading.set_intra_op_parallelism_threads(threads)
        remarks.seek(0)
        text = remarks.read().decode("utf-8", "replace")
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not has_gpu and not is_hidden and any(map(os.path.exists, _NVIDIA)):
        advice = _UNUSED_GPU.format(install=install_command("gpu"))
        print(f"{text}t2t: {advice}", file=sys.stderr)


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


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
    list_names: Callable[[], Iterable[str]], suffix: str = ""
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
