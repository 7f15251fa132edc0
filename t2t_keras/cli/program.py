"""The `t2t` program: parses the command line, runs a command, returns an exit code."""

import argparse
import contextlib
import errno
import functools
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from t2t_keras import registry
from t2t_keras.captured_stderr import diverted_stderr
from t2t_keras.cli import data, evaluation, exporting, training, translation
from t2t_keras.cli.command import Command, listing, utf8
from t2t_keras.decoding.batches import MAX_PARALLEL_BATCHES
from t2t_keras.entry_points import counterpart, load_plugins
from t2t_keras.errors import UserError, did_you_mean, require_local
from t2t_keras.usr_dir import load_usr_dir

# Files that exist if there is a driver for NVIDIA GPUs.
_NVIDIA = ("/dev/nvidia0", "/proc/driver/nvidia")
_UNUSED_GPU = (
    "TensorFlow cannot use the NVIDIA GPU of this machine, and the CPU is used; "
    "install t2t_keras[gpu] or mend the driver (TF_CPP_MIN_LOG_LEVEL=0 shows more), or "
    "set CUDA_VISIBLE_DEVICES=-1"
)

_CORE = {
    **data.COMMANDS,
    **training.COMMANDS,
    **translation.COMMANDS,
    **evaluation.COMMANDS,
    **exporting.COMMANDS,
}


@functools.cache
def commands() -> dict[str, Command]:
    """Returns the commands by name: those of the core, and those of plugins."""
    return _CORE | load_plugins("commands")


_WORKFLOW = """\
the workflow:
  t2t datagen   --problem translate_ende_toy --data_dir data
  t2t train     --problem translate_ende_toy --hparams_set tiny \\
                --data_dir data --output_dir runs/toy
  t2t translate --output_dir runs/toy --input source.txt --output translation.txt
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        0; 2 after a user's mistake; by the shell's convention, 130 after Ctrl-C, 143
        after SIGTERM and 129 after SIGHUP in training, and 141 after SIGPIPE on
        standard output.
    """
    argv = sys.argv[1:] if argv is None else argv
    command = ""
    try:
        _require_standard_streams()
        args = _parse(argv)
        command = f" {args.command}"
        _run(args)
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
        return _fail("; ".join([f"t2t{command}: interrupted", *interrupt.args]), 130)


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


def _run(args: argparse.Namespace) -> None:
    """Runs the command; standard output gets its result only."""
    command = commands()[args.command]
    # Set before TensorFlow is imported: it would warn about this machine's CPU. With
    # several processes, each would also log an error when another one ends.
    level = "3" if os.environ.get("TF_CONFIG") else "2"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", level)
    # A process that evaluates may use the GPU of one that trains.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    needs_tensorflow = command.uses_tensorflow
    if callable(needs_tensorflow):
        needs_tensorflow = needs_tensorflow(args)
    if needs_tensorflow and backend != "tensorflow":
        raise UserError(
            f"KERAS_BACKEND is '{backend}', and this needs TensorFlow: unset it or set "
            "it to tensorflow"
        )
    with contextlib.redirect_stdout(sys.stderr):  # whatever a library prints
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
    text = json.dumps(result) if args.json else command.show(result)
    if text:
        print(text, flush=True)


def _import_tensorflow(decodes_files: bool) -> None:
    """Imports TensorFlow without its warnings about a missing GPU.

    C++ code prints them, the last one when devices are listed, and no setting mutes
    them all: so standard error is diverted. If there is a GPU that cannot be used, they
    are printed.

    Args:
        decodes_files: see `Command`.
    """
    with diverted_stderr() as remarks:
        import tensorflow as tf

        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        if not has_gpu:
            # TensorFlow keeps freed memory for reuse. malloc would return large blocks
            # to the system, and every step would have the page faults again.
            os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
        is_given = "TF_NUM_INTRAOP_THREADS" in os.environ
        if decodes_files and not has_gpu and not is_given:
            threads = max(1, (os.cpu_count() or 1) // MAX_PARALLEL_BATCHES)
            with contextlib.suppress(RuntimeError):  # its threads have begun already
                tf.config.threading.set_intra_op_parallelism_threads(threads)
        remarks.seek(0)
        text = remarks.read().decode("utf-8", "replace")
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not has_gpu and not is_hidden and any(map(os.path.exists, _NVIDIA)):
        print(f"{text}t2t: {_UNUSED_GPU}", file=sys.stderr)


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence each."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_fail(f"{self.prog}: error: {message}", 2))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; an unknown name gets a suggestion."""
    parser = _Parser(
        prog="t2t",
        usage="t2t [-h] [--version] COMMAND ...",
        description="The Transformer of 'Attention Is All You Need': train, translate, "
        "evaluate, export.",
        epilog=f"{_commands_help()}\n{_WORKFLOW}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action=_Version, help="print the versions and exit"
    )
    # `_commands_help` lists them in groups, which argparse does not have.
    subparsers = parser.add_subparsers(
        dest="command",
        metavar="COMMAND",
        required=True,
        prog="t2t",
        help=argparse.SUPPRESS,
    )
    parsers: dict[str, _Parser] = {}
    for name, command in commands().items():
        parsers[name] = subparsers.add_parser(
            name,
            help=command.summary,
            description=command.summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_flags(parsers[name])
        parsers[name].add_argument(
            "--json",
            action="store_true",
            help="print one JSON object as the last line of standard output",
        )
    if "_ARGCOMPLETE" in os.environ:
        _complete(parser, parsers)
    if not argv:
        argv = ["--help"]
    mistake = None
    if argv[0] in parsers:
        mistake = _add_problem_flags(argv, parsers[argv[0]])
    _check_names(argv, parser, parsers, mistake)
    namespace = argparse.Namespace(argv=argv, environ=dict(os.environ))
    args = parser.parse_args(argv, namespace)
    _require_local_paths(args, parsers[args.command])
    return args


def _require_local_paths(args: argparse.Namespace, parser: _Parser) -> None:
    """Refuses addresses of remote storage in the values of flags."""
    for action in parser._actions:
        if action.type is not utf8:  # a text may look like an address
            values = getattr(args, action.dest, None)
            for value in values if isinstance(values, list) else [values]:
                name = (action.option_strings or [action.dest])[0]
                require_local(name, value)


def _add_problem_flags(argv: Sequence[str], parser: _Parser) -> UserError | None:
    """Adds the flags that only the problem of `--problem` has, for `t2t datagen`.

    Returns:
        The error if the problem cannot be used, so that its flags are unknown.
    """
    if not commands()[argv[0]].has_problem_flags:
        return None
    names = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    names.add_argument("--problem", nargs="?")
    names.add_argument("--usr_dir", nargs="?")
    args, _ = names.parse_known_args(argv[1:])
    try:
        with contextlib.redirect_stdout(sys.stderr):
            if args.problem:
                if args.usr_dir:
                    load_usr_dir(args.usr_dir)
                problem = registry.problem(args.problem)
                group = parser.add_argument_group(f"problem {args.problem}")
                problem.add_flags(group)
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
    added = {name: command for name, command in commands().items() if name not in _CORE}
    sections = []
    for title, group in {"core": _CORE, "plugins": added}.items():
        if group:
            summaries = {name: command.summary for name, command in group.items()}
            sections.append(f"{title}:\n{listing(summaries)}\n")
    return "\n".join(sections)


def _complete(parser: _Parser, parsers: dict[str, _Parser]) -> None:
    """Answers the shell's request for completions, and ends the program.

    The names of problems and hparam sets are those that are registered now.
    """
    import argcomplete

    def names_of(
        list_names: Callable[[], dict[str, str]], suffix: str = ""
    ) -> Callable[..., list[str]]:
        def complete(
            prefix: str, parsed_args: argparse.Namespace, **_: object
        ) -> list[str]:
            if getattr(parsed_args, "usr_dir", None):
                load_usr_dir(parsed_args.usr_dir)
            names = list(list_names())
            if suffix:
                names += [f"{x}{suffix}" for x in names if prefix.startswith(x)]
            return names

        return complete

    completers = {
        "--problem": names_of(registry.list_problems, "_rev"),
        "--hparams_set": names_of(registry.list_hparams),
    }
    for command_parser in parsers.values():
        for flag, action in command_parser._option_string_actions.items():
            if flag in completers:
                action.completer = completers[flag]  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _check_names(
    argv: Sequence[str],
    parser: _Parser,
    parsers: dict[str, _Parser],
    mistake: UserError | None,
) -> None:
    """Ends the program at an unknown command or flag: says what to use instead.

    Args:
        argv: the words of the command line.
        parser: the parser of the program.
        parsers: the parsers of the commands.
        mistake: why the flags of the problem are unknown.
    """
    command = argv[0]
    if command.startswith("-"):
        if command not in parser._option_string_actions:
            hint = did_you_mean(command, parser._option_string_actions, "{}")
            parser.error(f"there is no flag {command} before the command{hint}")
        return
    if command not in parsers:
        if explained := counterpart("t2t", command):
            parser.error(explained)
        hint = did_you_mean(command, parsers, "{}")
        parser.error(f"there is no command '{command}'{hint} (`t2t --help` lists them)")
    flags = parsers[command]._option_string_actions
    actions = parsers[command]._actions
    has_command = any(action.nargs == argparse.REMAINDER for action in actions)
    for index, word in enumerate(argv[1:], 1):
        is_flag_or_value = any(x.startswith("-") for x in argv[index - 1 :][:2])
        if has_command and not is_flag_or_value:
            return  # the following flags belong to the command that begins here
        flag, equals, value = word.partition("=")
        if not re.match("--?[A-Za-z]", flag) or flag in flags:
            continue
        if not equals and index + 1 < len(argv):
            value = argv[index + 1]
        advice = counterpart(command, flag, value)
        if not advice and not flag.startswith("--"):
            continue
        # The flag may be one of the problem's, if that could be used.
        message = "; ".join(filter(None, (advice, str(mistake or ""))))
        hint = did_you_mean(flag, flags, "{}")
        parsers[command].error(message or f"there is no flag {flag}{hint}")
