"""The actor that runs one process of a training."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_keras.processes import end_with_parent

from .process_environment import process_environment


class State(NamedTuple):
    """What a process has done.

    Attributes:
        status: its exit status, as in `subprocess`; None: it runs.
        output: what it has printed on standard output since the last call.
        errors: the same of standard error.
    """

    status: int | None
    output: bytes
    errors: bytes


class TrainingWorker:
    """A place for a process, with a port for it."""

    def __init__(self) -> None:
        # The process can still bind the port: it sets this option too, and nobody
        # listens here.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("", 0))
        self._process: subprocess.Popen[bytes] | None = None
        # What the process prints on standard output and standard error.
        self._printed = (_Printed(), _Printed())

    def address(self) -> tuple[str, int]:
        """Returns the host and the port of the process."""
        import ray

        return ray.util.get_node_ip_address(), self._port.getsockname()[1]

    def start(
        self, command: Sequence[str], additions: Mapping[str, str], folder: str
    ) -> None:
        """Starts the process.

        Args:
            command: the command, without Python.
            additions: what is added to the environment of this actor, which Ray gave
                its GPUs.
            folder: the working directory.
        """
        parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, *command],
            env=process_environment(additions),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._printed[0].file,
            stderr=self._printed[1].file,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),
        )

    def poll(self) -> State:
        """Returns what the process has done since the last call."""
        assert self._process is not None
        status = self._process.poll()  # before its last output is read
        output, errors = self._printed
        return State(status, output.unread(), errors.unread())

    def send_signal(self, signum: int) -> None:
        """Sends a signal to the process."""
        if self._process is not None:
            self._process.send_signal(signum)

    def kill(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class _Printed:
    """A file to which a process prints.

    Attributes:
        file: the file.
    """

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  (ends with the actor)
        self._offset = 0

    def unread(self) -> bytes:
        """Returns what was printed since the last call."""
        descriptor = self.file.fileno()
        size = os.fstat(descriptor).st_size - self._offset
        content = os.pread(descriptor, size, self._offset)
        self._offset += len(content)
        return content
