"""The `t2t` program: parses the command line, runs a command, returns an exit code."""

import contextlib
import errno
import functools
import importlib.metadata
import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NoReturn

from t2t_keras.cli import (
    data,
    evaluation,
    exporting,
    listing,
    repeating,
    scoring,
    training,
    translation,
)
from t2t_keras.cli.command import Command
from t2t_keras.cli.config_file import flag_values, read_config, require_known_names
from t2t_keras.cli.parsing import CommandLine, UsageErrors
from t2t_keras.console import busy, say, say_next, two_columns
from t2t_keras.devices import keep_compiled_programs, num_cores, visible_gpus
from t2t_keras.entry_points import counterpart, load_plugin, load_plugins, plugin_names
from t2t_keras.errors import UserError, did_you_mean, install_command
from t2t_keras.tensorflow_import import diverted_stderr
from t2t_keras.usr_dir import load_usr_dir

if TYPE_CHECKING:
    from cyclopts import App

CORE: dict[str, type[Command]] = {
    **listing.COMMANDS,
    **data.COMMANDS,
    **training.COMMANDS,
    **repeating.COMMANDS,
    **translation.COMMANDS,
    **scoring.COMMANDS,
    **evaluation.COMMANDS,
    **exporting.COMMANDS,
}

# The headings of `t2t --help`; plugins may have others.
HEADINGS = ("data and training", "using a model", "judging a model")


@functools.cache
def commands() -> dict[str, type[Command]]:
    """Returns the commands by name: those of the core, and those of plugins."""
    return CORE | load_plugins("commands")


def _command_names() -> list[str]:
    """Returns the names of all commands, without importing those of plugins."""
    return [*CORE, *plugin_names("commands")]


def find_command(name: str) -> type[Command] | None:
    """Returns a command; other plugins are not imported. None: there is none."""
    return CORE.get(name) or load_plugin("commands", name)


def extensions(name: str) -> dict[str, type[Command]]:
    """Returns the extensions of a command, by the flag that asks for each.

    An extension is a subclass of the command, an entry point of `t2t_keras.extensions`
    with the name `COMMAND.FLAG`; it takes the place of the command if the flag is
    given.
    """
    classes = {}
    for plugin in plugin_names("extensions"):
        command, _, flag = plugin.partition(".")
        if command == name and (extension := load_plugin("extensions", plugin)):
            classes[flag] = extension
    return classes


_WORKFLOW = """\
the workflow:
  t2t datagen   --problem translate_ende_toy --data_dir data
  t2t train     --problem translate_ende_toy --hparams_set tiny \\
                --data_dir data --output_dir runs/toy
  t2t translate runs/toy source.txt --output translation.txt
"""


def parse(argv: Sequence[str]) -> Command:
    """Returns the command with the values of its flags.

    Args:
        argv: the command line: the command and the words after it.

    Raises:
        SystemExit: the help or the versions were asked for, and have been printed.
        UsageErrors: a flag or the command is unknown or missing.
        UserError: a value is impossible.
    """
    name, *words = argv or ["--help"]
    if name == "__complete":  # the script of `--completion` asks for names
        _application()(argv)
        sys.exit()
    if name.startswith("-"):
        _answer_flag(name, words)
    command = find_command(name)
    if command is None:
        _refuse_command(name, words)
    values: dict[str, object] = {}
    line = command_line(name, command)
    own_words = line.own_words(words)
    file = _early(own_words, "config")
    if file:
        try:
            values = read_config(file, name, _command_names())
        except UserError as error:
            line.require_known(words, error)
            raise
    problem = _early(own_words, "problem") or _text(values, "problem")
    usr_dir = _early(own_words, "usr_dir") or _text(values, "usr_dir")
    part: type | None = None
    mistake: UserError | None = None
    try:
        with contextlib.redirect_stdout(sys.stderr):  # of a user's definitions
            part = command.plugin_flags(problem, usr_dir)
    except UserError as error:  # it is reported when the command runs
        mistake = error
    line = command_line(name, command, part)
    if asked := {"-h", "--help", "--help-all"}.intersection(own_words):
        line.print_help(show_all="--help-all" in asked)
        sys.exit()
    line.require_known(words, mistake)
    if values:
        # Every key of another command asks for them.
        other_names = functools.cache(lambda: _flag_names(problem, usr_dir))
        own_names = {name.lstrip("-") for name in line.names()}
        require_known_names(
            file, values, name, own_names, other_names, _command_names()
        )
    given_values = line.parse(words, file, flag_values(file, values, line.flags))
    parsed = line.command_with(given_values, command, **extensions(name))
    parsed.words = tuple(argv)
    parsed.environ = dict(os.environ)
    return parsed


def command_line(name: str, command: type[Command], *parts: type | None) -> CommandLine:
    """Returns the parser of a command, with the flags of its extensions.

    Args:
        name: the name of the command.
        command: the command.
        *parts: further dataclasses with flags, such as those of a problem, if any.
    """
    classes = (*extensions(name).values(), command, *filter(None, parts))
    return CommandLine(name, *classes)


def _flag_names(problem: str | None, usr_dir: str | None) -> set[str]:
    """Returns the flags of all commands, with those that a problem adds."""
    names: set[str] = set()
    for name, command in commands().items():
        part = None
        with contextlib.suppress(UserError):  # it is reported when the command runs
            part = command.plugin_flags(problem, usr_dir)
        names |= command_line(name, command, part).names()
    return {name.lstrip("-") for name in names}


def _early(words: Sequence[str], name: str) -> str:
    """Returns the value of a flag that decides which other flags there are, or ""."""
    value = ""
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        flag, equals, text = word.partition("=")
        if flag == f"--{name}":
            next_value = "" if following.startswith("-") else following
            value = text if equals else next_value
    return value


def _text(values: Mapping[str, object], name: str) -> str | None:
    """Returns a value of a file that must be a text; None: it is not there."""
    return str(values[name]) if name in values else None


_FLAGS = {
    "-h, --help": "show this help message and exit",
    "--version": "print the versions and exit",
    "--completion": "print the script for the completion of a shell: bash, zsh or fish",
}


def _answer_flag(flag: str, words: Sequence[str]) -> NoReturn:
    """Answers a flag before the command, and ends the program.

    Raises:
        UsageErrors: there is no such flag.
    """
    names = [name for names in _FLAGS for name in names.split(", ")]
    if flag not in names:
        hint = did_you_mean(flag.removeprefix("--"), [x[2:] for x in names], "--{}")
        raise UsageErrors(f"there is no flag {flag} before the command{hint}")
    if flag == "--version":
        package, *libraries = (
            f"{name} {importlib.metadata.version(name)}"
            for name in ("t2t_keras", "tensorflow", "keras")
        )
        print(f"{package} ({', '.join(libraries)})")
    elif flag == "--completion":
        print(_completion(words))
    else:
        print(_help())
    sys.exit()


def _completion(words: Sequence[str]) -> str:
    """Returns the script by which a shell completes command lines."""
    shells: tuple[Literal["bash", "zsh", "fish"], ...] = ("bash", "zsh", "fish")
    for shell in shells:
        if [*words] == [shell]:
            script = _application().generate_completion(prog_name="t2t", shell=shell)
            return f"{script}compdef _cyclopts_t2t t2t" if shell == "zsh" else script
    raise UsageErrors("--completion takes one of bash, zsh, fish")


def _application() -> "App":
    """Returns the cyclopts application with all commands, for completion."""
    from cyclopts import App

    app = App(name="t2t", help_flags=(), version_flags=())
    for name, command in commands().items():
        app.command(command_line(name, command).app())
    return app


def _help() -> str:
    """Returns the help of the program: the commands with their summaries, in groups."""
    groups: dict[str, dict[str, str]] = {title: {} for title in HEADINGS}
    for name, command in commands().items():
        groups.setdefault(command.heading, {})[name] = command.summary
    sections = [
        "usage: t2t [-h] [--version] COMMAND ...\n",
        "The Transformer of 'Attention Is All You Need': train, translate, evaluate, "
        "export.\n",
    ]
    for title, rows in ({"options": _FLAGS} | groups).items():
        if rows:
            sections.append(f"{title}:\n{two_columns(rows)}\n")
    return "\n".join([*sections, _WORKFLOW.rstrip()])


def _refuse_command(name: str, words: Sequence[str]) -> NoReturn:
    """Refuses an unknown command: says what to use instead.

    Args:
        name: the command; of another toolkit's program, all flags are answered as well.
        words: the words after it.

    Raises:
        UsageErrors: always.
    """
    if explained := counterpart("t2t", name):
        line = CommandLine(name, Command)
        flags = line.unknown_flags(words)
        answers = [counterpart(name, flag, value) for flag, value in flags]
        raise UsageErrors(explained, *filter(None, answers))
    hint = did_you_mean(name, _command_names(), "{}")
    raise UsageErrors(f"there is no command '{name}'{hint} (`t2t --help` lists them)")


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
        command = f" {argv[0]}" if argv and argv[0] in _command_names() else ""
        selected = parse(argv)
        _run(selected)
        return 0
    except UsageErrors as error:
        for sentence in dict.fromkeys(error.args):
            _fail(f"t2t{command}: error: {sentence}", 2)
        return 2
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


def _run(command: Command) -> None:
    """Runs the command; standard output gets its result only."""
    # A process that evaluates may use the GPU of one that trains.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    with contextlib.redirect_stdout(sys.stderr):  # of a user's definitions
        needs_tensorflow = command.needs_tensorflow()
    if needs_tensorflow and backend != "tensorflow":
        raise UserError(
            f"KERAS_BACKEND is '{backend}', and this needs TensorFlow: unset it or set "
            "it to tensorflow"
        )
    with (
        contextlib.redirect_stdout(sys.stderr),  # whatever a library prints
        busy(command.waiting) if command.waiting else contextlib.nullcontext(),
    ):
        usr_dir = getattr(command, "usr_dir", None) or ""
        # Its files may import TensorFlow.
        is_early = needs_tensorflow and os.path.isdir(usr_dir)
        if is_early:
            _import_tensorflow(command.decodes_files())
        if usr_dir:
            load_usr_dir(usr_dir)
        command.check()
        if needs_tensorflow and not is_early:
            _import_tensorflow(command.decodes_files())
        result = command.run()
    if command.json:
        print(json.dumps(result), flush=True)
        return
    if text := command.show(result):
        say(text, sys.stdout)
    say_next(command.next_command())


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

            threads = max(1, num_cores() // MAX_PARALLEL_BATCHES)
            with contextlib.suppress(RuntimeError):  # its threads have begun already
                tf.config.threading.set_intra_op_parallelism_threads(threads)
        remarks.seek(0)
        text = remarks.read().decode("utf-8", "replace")
    if visible_gpus() and not has_gpu:
        advice = _UNUSED_GPU.format(install=install_command("gpu"))
        say(f"{text}t2t: {advice}")


def _fail(message: str, code: int) -> int:
    say(message)
    return code
