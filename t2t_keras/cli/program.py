"""The `t2t` program: parses the command line, runs a command, returns an exit code."""

import argparse
import contextlib
import errno
import json
import os
import sys
from collections.abc import Sequence

from t2t_keras.captured_stderr import diverted_stderr
from t2t_keras.cli.command import Command
from t2t_keras.cli.command_line import parse
from t2t_keras.data.console import busy, say_next
from t2t_keras.errors import UserError, install_command
from t2t_keras.usr_dir import load_usr_dir
from t2t_keras.xla_cache import keep_compiled_programs

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
