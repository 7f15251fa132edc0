"""The command that starts a training in several processes: `t2t launch`.

The launcher gives every process a TF_CONFIG, as a user of several machines does by
hand, and waits for them without importing TensorFlow. `Processes` starts them, passes
signals on and says which one has failed. The chief's output is the user's; the others
print only errors, which are shown if one of them fails. Each of them has its own
session, so that Ctrl-C in a terminal reaches only the launcher, which passes it on.
"""

import contextlib
import dataclasses
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Protocol

from t2t_keras.cli.command import Command, CommandResult
from t2t_keras.console import say
from t2t_keras.devices import visible_gpus
from t2t_keras.errors import UserError
from t2t_keras.options import option
from t2t_keras.processes import (
    LAUNCHED,
    LOST,
    SIGNALS,
    T2T,
    end_with_parent,
    handled_signals,
    leave_closed_terminal,
)

_POLL_SECONDS = 0.05
# After one process has ended, the others have this time to end, because the chief may
# still complete a checkpoint or print its result.
_SECONDS_TO_FOLLOW = 60.0
# If a signal has ended the chief, they have only this time.
_SECONDS_WITHOUT_CHIEF = 5.0
# Signals within this time count as one request, because `timeout` sends two at once.
_SECONDS_OF_ONE_REQUEST = 1.0
# How much of a process's output is kept: a library may log for weeks.
_KEPT_BYTES = 1 << 16
_LEFT_OUT = b"... (earlier lines are left out)\n"
_RESUME = "run the same command again, and it resumes from the last checkpoint"


class LostProcesses(UserError):
    """The processes were killed or lost contact; the training can be resumed.

    Attributes:
        event: what happened, for messages.
    """

    def __init__(self, event: str) -> None:
        super().__init__(f"{event}; {_RESUME}")
        self.event = event


class Process(Protocol):
    """One of the processes."""

    def poll(self) -> int | None:
        """Returns the exit status, as `subprocess` does; None: the process runs."""

    def send_signal(self, signum: int) -> None:
        """Sends a signal to the process."""

    def kill(self) -> None:
        """Ends the process at once, and waits for its end."""

    def errors(self) -> str:
        """Returns the last lines that it has printed on standard error.

        The chief's are shown at once, and need not be returned.
        """


def last_lines(content: bytes) -> bytes:
    """Returns the last lines of what a process has printed, in at most 64 KiB."""
    if len(content) <= _KEPT_BYTES:
        return content
    tail = content[len(_LEFT_OUT) - _KEPT_BYTES :]
    return _LEFT_OUT + (tail.partition(b"\n")[2] or tail)


class LocalProcess:
    """A process of this machine.

    Args:
        index: which process it is; 0 is the chief.
        command: the command.
        environment: its environment.
    """

    def __init__(
        self, index: int, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        is_chief = index == 0
        launcher = os.getpid()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `kill`)
        self._text = ""
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=None if is_chief else subprocess.DEVNULL,
            stderr=None if is_chief else self._errors.fileno(),
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(launcher),
        )

    def poll(self) -> int | None:
        """Returns the exit status; see `Process`."""
        return self._process.poll()

    def send_signal(self, signum: int) -> None:
        """Sends a signal to the process."""
        self._process.send_signal(signum)

    def kill(self) -> None:
        """Ends the process at once, and waits for its end."""
        self._process.kill()
        self._process.wait()
        if not self._errors.closed:
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(size - _KEPT_BYTES - 1, 0))
            self._text = last_lines(self._errors.read()).decode("utf-8", "replace")
            self._errors.close()

    def errors(self) -> str:
        """Returns its last lines, once it is killed; see `Process`."""
        return self._text


class Processes:
    """Processes that run the same command and end together.

    Args:
        command: the command.
        environments: the environment of each process.
        start: starts a process, given its index, the command and its environment.
    """

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        start: Callable[
            [int, Sequence[str], Mapping[str, str]], Process
        ] = LocalProcess,
    ) -> None:
        self._command = command
        self._environments = environments
        self._start = start
        self._processes: list[Process] = []
        self._passed_on: signal.Signals | None = None
        self._time_passed_on = 0.0

    def run(self) -> int:
        """Runs the processes; returns the exit status of the chief.

        Raises:
            LostProcesses: one of them was killed, or they have lost contact.
            UserError: one of them has failed.
        """
        previous_handlers: dict[signal.Signals, Any] = {}
        try:
            # Signals are delivered after all processes have started.
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            for signum in handled_signals():
                previous_handlers[signum] = signal.signal(signum, self._pass_on)
            for index, environment in enumerate(self._environments):
                process = self._start(index, self._command, environment)
                self._processes.append(process)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            statuses = self._wait()
        finally:
            for process in self._processes:
                process.kill()
            for signum, handler in previous_handlers.items():
                signal.signal(signum, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        messages = [process.errors() for process in self._processes]
        return self._exit_status(statuses, messages)

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
            messages: the last lines of each process on standard error.

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
            raise LostProcesses(f"the {count} processes have lost contact")
        cause = (killed or [*failed])[0]
        raise self._error(cause, failed[cause], messages[cause])

    def _error(self, index: int, status: int, output: str) -> UserError:
        """Returns the error for a failed process, and prints the rest of its output.

        Args:
            index: which process.
            status: its status, negative if a signal has killed it.
            output: its last lines on standard error.
        """
        *log, message = output.rstrip().rsplit("\n", 1)
        for text in log:  # a traceback, or the log of a library
            say(text)
        message = message.removeprefix("t2t train: error: ")
        process = f"process {index} of {len(self._processes)}"
        if status > 0:
            return UserError(
                f"{process} ended with exit status {status}: {message or 'no message'}"
            )
        event = f"was killed by {signal.Signals(-status).name}"
        if message:
            event = f"{event}, and its last message was: {message}"
        return LostProcesses(f"{process} {event}")

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


def reserved_port(host: str = "") -> socket.socket:
    """Returns a socket whose port no other program gets while it is open.

    A training process can still bind the port, because it also sets this option and
    nobody listens here.
    """
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, 0))
    return server


def training_variables(addresses: Sequence[tuple[str, int]]) -> list[dict[str, str]]:
    """Returns the variables by which the processes of a training find each other.

    Args:
        addresses: the host and the port of each process, first the chief's.
    """
    cluster = {"worker": [f"{host}:{port}" for host, port in addresses]}
    # gRPC would connect, even to localhost, through the proxy of `http_proxy`.
    no_proxy = ",".join(dict.fromkeys(host for host, _ in addresses))
    variables = []
    for index in range(len(addresses)):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        variables.append(
            {"TF_CONFIG": config, "no_grpc_proxy": no_proxy, LAUNCHED: "1"}
        )
    return variables


def environments(ports: Sequence[int]) -> list[dict[str, str]]:
    """Returns the variables that each process gets in addition to the user's.

    Args:
        ports: the port of each process.
    """
    gpus = visible_gpus()
    variables = training_variables([("localhost", port) for port in ports])
    if gpus:
        for index, additions in enumerate(variables):
            additions["CUDA_VISIBLE_DEVICES"] = gpus[index]
    return variables


@dataclasses.dataclass(kw_only=True)
class Launch(Command):
    """Trains in several processes on this machine."""

    summary = "train in several processes on this machine"
    heading = "data and training"

    processes: int | None = option(
        None,
        "number of processes on this machine, each with one of the visible GPUs",
        ge=1,
    )
    train_command: tuple[str, ...] = option(
        (),
        "the command line of `t2t train`",
        metavar="train ...",
        positional=True,
        remainder=True,
        is_text=True,
    )

    def check(self) -> None:
        """Refuses other commands, and more processes than there are GPUs."""
        if self.processes is None:
            raise UserError(
                "give --processes N, the number of processes on this machine"
            )
        if self.train_command[:1] != ("train",):
            raise UserError(
                "only `train` runs in several processes; write `t2t launch --processes "
                f"{self.processes} train ...`"
            )
        if os.environ.get("TF_CONFIG"):
            raise UserError(
                "`t2t launch` is for one machine, and the environment variable "
                "TF_CONFIG names the processes of several; unset it, or use `t2t train`"
            )
        gpus = visible_gpus()
        if gpus and self.processes > len(gpus):
            raise UserError(
                f"--processes {self.processes}: each process takes a GPU, and "
                f"{len(gpus)} are visible ({', '.join(gpus)}); use at most that many, "
                "or name more GPUs in CUDA_VISIBLE_DEVICES"
            )

    def run(self) -> CommandResult:
        """Runs the processes, and ends the program with the status of the chief."""
        assert self.processes is not None
        command = [sys.executable, *T2T, *self.train_command]
        if self.json:
            command.append("--json")
        with contextlib.ExitStack() as stack:
            servers = [reserved_port("localhost") for _ in range(self.processes)]
            ports = [stack.enter_context(x).getsockname()[1] for x in servers]
            variables = []
            for additions in environments(ports):
                variables.append({**self.environ, **additions})
            raise SystemExit(Processes(command, variables).run())


COMMAND = Launch
