"""The command that starts a training in several processes: `launch`.

The launcher gives every process a TF_CONFIG, as a user of several machines does by
hand, and waits for them without importing TensorFlow. Process 0, the chief, inherits
the launcher's standard output and standard error. The others print only errors, which
are shown if one of them fails.

Each process has its own session, so that Ctrl-C in a terminal reaches only the
launcher, which passes it on once. On Linux the processes end with the launcher, even if
SIGKILL ends it.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from t2t_keras.cli.command import Command, positive
from t2t_keras.errors import UserError
from t2t_keras.signals import (
    SIGNALS,
    end_with_parent,
    handled_signals,
    leave_closed_terminal,
)
from t2t_keras.training.stopping import LAUNCHED, LOST
from t2t_keras.visible_gpus import visible_gpus

_MAIN = "import sys; from t2t_keras.cli import main; sys.exit(main())"

_POLL_SECONDS = 0.05
# After one process has ended, the others have this time to end, because the chief may
# still complete a checkpoint or print its result.
_SECONDS_TO_FOLLOW = 60.0
# If a signal has ended the chief, they have only this time.
_SECONDS_WITHOUT_CHIEF = 5.0
# Signals within this time count as one request, because `timeout` sends two at once.
_SECONDS_OF_ONE_REQUEST = 1.0

_RESUME = "run the same command again, and it resumes from the last checkpoint"


def _launch_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes",
        type=positive,
        required=True,
        metavar="N",
        help="number of processes on this machine, each with one of the visible GPUs",
    )
    parser.add_argument(
        "train_command",
        nargs=argparse.REMAINDER,
        metavar="train ...",
        help="the command line of `t2t train`",
    )


def _check_launch(args: argparse.Namespace) -> None:
    if args.train_command[:1] != ["train"]:
        raise UserError(
            "only `train` runs in several processes; write `t2t launch --processes "
            f"{args.processes} train ...`"
        )
    if os.environ.get("TF_CONFIG"):
        raise UserError(
            "`t2t launch` is for one machine, and the environment variable TF_CONFIG "
            "names the processes of several; unset it, or use `t2t train`"
        )
    gpus = visible_gpus()
    if gpus and args.processes > len(gpus):
        raise UserError(
            f"--processes {args.processes}: each process takes a GPU, and {len(gpus)} "
            f"are visible ({', '.join(gpus)}); use at most {len(gpus)} processes, or "
            "name more GPUs in CUDA_VISIBLE_DEVICES"
        )


def _launch(args: argparse.Namespace) -> dict[str, Any]:
    # -P keeps Python from importing modules of the working directory, as `t2t` does.
    command = [sys.executable, "-P", "-c", _MAIN, *args.train_command]
    if args.json:
        command.append("--json")
    with contextlib.ExitStack() as stack:
        ports = [_reserve_port(stack) for _ in range(args.processes)]
        variables = []
        for additions in environments(ports):
            variables.append(args.environ | additions)
        raise SystemExit(Processes(command, variables).run())


def _reserve_port(stack: contextlib.ExitStack) -> int:
    """Returns a port that no other program gets while the stack is open."""
    server = stack.enter_context(socket.socket())
    # The training process can still bind the port: it sets this option too, and nobody
    # listens here.
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("localhost", 0))
    return server.getsockname()[1]


def environments(ports: Sequence[int]) -> list[dict[str, str]]:
    """Returns the variables that each process gets in addition to the user's.

    Args:
        ports: the port of each process.
    """
    gpus = visible_gpus()
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    variables = []
    for index in range(len(ports)):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        # gRPC would connect even to localhost through the proxy of `http_proxy`.
        additions = {"TF_CONFIG": config, "no_grpc_proxy": "localhost", LAUNCHED: "1"}
        if gpus:
            additions["CUDA_VISIBLE_DEVICES"] = gpus[index]
        variables.append(additions)
    return variables


class Processes:
    """Processes that run the same command and end together.

    Args:
        command: the command.
        environments: the environment of each process.
    """

    def __init__(
        self, command: Sequence[str], environments: Sequence[dict[str, str]]
    ) -> None:
        self._command = command
        self._environments = environments
        self._processes: list[subprocess.Popen[bytes]] = []
        self._passed_on: signal.Signals | None = None
        self._time_passed_on = 0.0

    def run(self) -> int:
        """Runs the processes; returns the exit status of the chief.

        Raises:
            UserError: one of them has failed.
        """
        previous_handlers: dict[signal.Signals, Any] = {}
        with contextlib.ExitStack() as stack:
            outputs = []
            for _ in self._environments:
                outputs.append(stack.enter_context(tempfile.TemporaryFile()))
            try:
                # Signals are delivered after all processes have started.
                signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
                for signum in handled_signals():
                    previous_handlers[signum] = signal.signal(signum, self._pass_on)
                for index, output in enumerate(outputs):
                    self._start(index, output.fileno())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                statuses = self._wait()
            finally:
                for process in self._processes:
                    process.kill()
                    process.wait()
                for signum, handler in previous_handlers.items():
                    signal.signal(signum, handler)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            messages = []
            for output in outputs:
                output.seek(0)
                messages.append(output.read().decode("utf-8", "replace"))
        return self._exit_status(statuses, messages)

    def _start(self, index: int, output: int) -> None:
        """Starts a process; the chief inherits standard output and error."""
        is_chief = index == 0
        launcher = os.getpid()
        self._processes.append(
            subprocess.Popen(
                self._command,
                env=self._environments[index],
                stdin=subprocess.DEVNULL,
                stdout=None if is_chief else subprocess.DEVNULL,
                stderr=None if is_chief else output,
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(launcher),
            )
        )

    def _wait(self) -> dict[int, int]:
        """Waits until all processes have ended, or some time after the first has.

        Returns:
            The statuses of the ended processes by index, as in `subprocess`.
        """
        deadline = math.inf
        while True:
            statuses = {}
            for index, process in enumerate(self._processes):
                status = process.poll()
                if status is not None:
                    statuses[index] = status
            time_now = time.monotonic()
            if len(statuses) == len(self._processes) or time_now > deadline:
                return statuses
            if statuses:
                # The others may have lost the signal, as in a callback of the garbage
                # collector (JAX has one). Without the chief, nothing more is saved.
                is_over = self._passed_on and 0 in statuses
                seconds = _SECONDS_WITHOUT_CHIEF if is_over else _SECONDS_TO_FOLLOW
                deadline = min(deadline, time_now + seconds)
            time.sleep(_POLL_SECONDS)

    def _is_failure(self, status: int) -> bool:
        """Returns whether a status is neither success nor due to a request to stop."""
        # Before the first step, the signal itself ends a process.
        if self._passed_on and status == -self._passed_on:
            return False
        return status not in (0, *(128 + signum for signum in SIGNALS))

    def _exit_status(self, statuses: dict[int, int], messages: Sequence[str]) -> int:
        """Returns the launcher's exit status.

        Args:
            statuses: the statuses of the processes that the launcher has not killed.
            messages: what each process has printed on standard error.

        Raises:
            UserError: a process has failed, and the chief has printed no message.
        """
        failed = {}
        for index, status in statuses.items():
            if self._is_failure(status) and status != LOST:
                failed[index] = status
        killed = [index for index, status in failed.items() if status < 0]
        chief_status = statuses.get(0, LOST)
        has_message = chief_status > 0 and chief_status != LOST and not killed
        if chief_status == 0 or has_message:
            return chief_status
        if self._passed_on and not failed:
            return 128 + self._passed_on
        if not failed:
            count = len(self._processes)
            raise UserError(f"the {count} processes have lost contact; {_RESUME}")
        cause = (killed or [*failed])[0]
        raise self._error(cause, failed[cause], messages[cause])

    def _error(self, index: int, status: int, output: str) -> UserError:
        """Returns the error for a failed process, and prints all its output but that.

        Args:
            index: which process.
            status: its status, negative if a signal has killed it.
            output: what it has printed on standard error.
        """
        *log, message = output.rstrip().rsplit("\n", 1)
        for text in log:  # a traceback, or the log of a library
            print(text, file=sys.stderr)
        message = message.removeprefix("t2t train: error: ")
        process = f"process {index} of {len(self._processes)}"
        if status > 0:
            return UserError(
                f"{process} ended with exit status {status}: {message or 'no message'}"
            )
        event = f"was killed by {signal.Signals(-status).name}"
        if message:
            event = f"{event}, and its last message was: {message}"
        return UserError(f"{process} {event}; {_RESUME}")

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        """Passes the first signal on; a second one ends all processes at once.

        A second SIGHUP does nothing, because the shell and the kernel both send it.
        """
        leave_closed_terminal()
        time_now = time.monotonic()
        if self._passed_on is None:
            self._passed_on = signal.Signals(signum)
            self._time_passed_on = time_now
            for process in self._processes:
                process.send_signal(signum)
        elif signum == signal.SIGHUP:
            return
        elif time_now - self._time_passed_on > _SECONDS_OF_ONE_REQUEST:
            raise SystemExit(128 + signum)


COMMAND = Command(
    "train in several processes on this machine",
    _launch_flags,
    _launch,
    lambda result: "",
    check=_check_launch,
    group="data and training",
)
