"""The command that starts a training in several processes: `launch`.

The launcher gives every process a TF_CONFIG, as a user of several machines does by
hand, and waits for them without importing TensorFlow. Process 0, the chief, has the
launcher's standard output and standard error; the others print only errors, which are
shown if one of them fails.

Each process has its own session, so that Ctrl-C in a terminal reaches only the
launcher, which passes it on once. On Linux the processes end with the launcher, even if
it is killed by SIGKILL.
"""

import argparse
import contextlib
import ctypes
import glob
import itertools
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
from t2t_keras.signals import SIGNALS, handled_signals, leave_closed_terminal
from t2t_keras.training.stopping import LAUNCHED, LOST

_MAIN = "import sys; from t2t_keras.cli import main; sys.exit(main())"
_NVIDIA = "/dev/nvidia[0-9]*"  # a file for each GPU
_PR_SET_PDEATHSIG = 1  # an operation of prctl on Linux

_POLL_SECONDS = 0.05
# How long the others may run after one process has ended: the chief may have to
# complete a checkpoint or print its result.
_SECONDS_TO_FOLLOW = 60.0
_SECONDS_WITHOUT_CHIEF = 5.0  # the same after a signal that has ended the chief
# Signals within this time count as one request: `timeout` sends two at once.
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
    gpus = _visible_gpus()
    if gpus and args.processes > len(gpus):
        raise UserError(
            f"--processes {args.processes}: each process takes a GPU, and {len(gpus)} "
            f"are visible ({', '.join(gpus)}); use at most {len(gpus)} processes, or "
            "name more GPUs in CUDA_VISIBLE_DEVICES"
        )


def _launch(args: argparse.Namespace) -> dict[str, Any]:
    # -P: like `t2t`, do not import modules from the working directory.
    command = [sys.executable, "-P", "-c", _MAIN, *args.train_command]
    command += ["--json"] * args.json
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(args.processes)]
        for port in ports:
            # A bound port is given to no other program. The training process can
            # still bind it: it sets this option as well, and nobody listens here.
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port.bind(("localhost", 0))
        numbers = [port.getsockname()[1] for port in ports]
        variables = [args.environ | own for own in environments(numbers)]
        raise SystemExit(Processes(command, variables).run())


def environments(ports: Sequence[int]) -> list[dict[str, str]]:
    """Returns the variables that each process gets in addition to the user's.

    Args:
        ports: the port of each process.
    """
    gpus = _visible_gpus()
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    variables = []
    for index in range(len(ports)):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        # gRPC would connect even to localhost through the proxy of `http_proxy`.
        each = {"TF_CONFIG": config, "no_grpc_proxy": "localhost", LAUNCHED: "1"}
        if gpus:
            each["CUDA_VISIBLE_DEVICES"] = gpus[index]
        variables.append(each)
    return variables


def _visible_gpus() -> list[str]:
    """Returns the names by which CUDA_VISIBLE_DEVICES selects the visible GPUs."""
    count = len(glob.glob(_NVIDIA))
    selected = os.environ.get("CUDA_VISIBLE_DEVICES")
    if selected is None or not count:
        return [str(number) for number in range(count)]
    names = (name.strip() for name in selected.split(","))
    # CUDA hides the first invalid name and all names after it.
    return list(itertools.takewhile(lambda name: name not in ("", "-1"), names))


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
        previous: dict[signal.Signals, Any] = {}
        with contextlib.ExitStack() as stack:
            outputs = [
                stack.enter_context(tempfile.TemporaryFile())
                for _ in self._environments
            ]
            try:
                # Signals are delivered after all processes have started.
                signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
                for number in handled_signals():
                    previous[number] = signal.signal(number, self._pass_on)
                for index, output in enumerate(outputs):
                    self._start(index, output.fileno())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                ends = self._wait()
            finally:
                for process in self._processes:
                    process.kill()
                    process.wait()
                for number, handler in previous.items():
                    signal.signal(number, handler)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            messages = []
            for output in outputs:
                output.seek(0)
                messages.append(output.read().decode("utf-8", "replace"))
        return self._status(ends, messages)

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
                preexec_fn=lambda: _prepare(launcher),
            )
        )

    def _wait(self) -> dict[int, int]:
        """Waits until all have ended, or some time after the first one has.

        Returns:
            The statuses of those that have ended, as in `subprocess`.
        """
        deadline = math.inf
        while True:
            statuses = enumerate(process.poll() for process in self._processes)
            ends = {index: status for index, status in statuses if status is not None}
            now = time.monotonic()
            if len(ends) == len(self._processes) or now > deadline:
                return ends
            if ends:
                # A signal is lost if it arrives in a callback of the garbage collector,
                # as JAX has one. Without the chief, nothing more is saved.
                is_over = self._passed_on and 0 in ends
                follow = _SECONDS_WITHOUT_CHIEF if is_over else _SECONDS_TO_FOLLOW
                deadline = min(deadline, now + follow)
            time.sleep(_POLL_SECONDS)

    def _is_failure(self, status: int) -> bool:
        """Returns whether a status is neither success nor due to a request to stop."""
        if self._passed_on and status == -self._passed_on:  # before the first step
            return False
        return status not in (0, *(128 + number for number in SIGNALS))

    def _status(self, ends: dict[int, int], messages: Sequence[str]) -> int:
        """Returns the exit status of all.

        Args:
            ends: the statuses of the processes that the launcher has not killed.
            messages: what each process has printed on standard error.

        Raises:
            UserError: one of them has failed, and the chief has printed no message.
        """
        failed = {
            index: end
            for index, end in ends.items()
            if self._is_failure(end) and end != LOST
        }
        killed = [index for index, end in failed.items() if end < 0]
        chief = ends.get(0, LOST)
        if chief == 0 or (chief > 0 and chief != LOST and not killed):
            return chief  # it has printed its result or its message
        if self._passed_on and not failed:
            return 128 + self._passed_on
        count = len(self._processes)
        if not failed:
            raise UserError(f"the {count} processes have lost contact; {_RESUME}")
        cause = (killed or [*failed])[0]
        *more, last = messages[cause].rstrip().rsplit("\n", 1)
        for text in more:  # a traceback, or the log of a library
            print(text, file=sys.stderr)
        last = last.removeprefix("t2t train: error: ")
        if not killed:
            how = f"ended with exit status {failed[cause]}"
            raise UserError(f"process {cause} of {count} {how}: {last or 'no message'}")
        how = f"was killed by {signal.Signals(-failed[cause]).name}"
        if last:
            how = f"{how}, and its last message was: {last}"
        raise UserError(f"process {cause} of {count} {how}; {_RESUME}")

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Passes the first signal on; a second one ends all processes at once.

        But not SIGHUP, which the shell and the kernel both send.
        """
        leave_closed_terminal()
        now = time.monotonic()
        if self._passed_on is None:
            self._passed_on, self._time_passed_on = signal.Signals(number), now
            self._send(number)
        elif number == signal.SIGHUP:
            return
        elif now - self._time_passed_on > _SECONDS_OF_ONE_REQUEST:
            raise SystemExit(128 + number)

    def _send(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)


def _prepare(launcher: int) -> None:
    """Unblocks signals in a new process, and makes it end with the launcher."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:  # which has already ended
            os._exit(LOST)


COMMAND = Command(
    "train in several processes on this machine",
    _launch_flags,
    _launch,
    lambda result: "",
    check=_check_launch,
)
