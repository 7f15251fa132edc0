"""What all that run the processes of trials do: start one, and say why it failed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from t2t_keras.console import show_note
from t2t_keras.processes import (
    end_with_parent,
    handled_signals,
    handling,
    leave_closed_terminal,
)

_LOG = "process.log"  # what the process of a trial prints, in its run directory


def start_trial(
    command: Sequence[str], run_dir: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts the process of a trial, which ends with this one.

    Args:
        command: the command, without Python.
        run_dir: the run directory of the trial, which exists.
        environment: the environment of the process.
    """
    parent = os.getpid()
    with (run_dir / _LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),
        )


def failure_reason(run_dir: Path, status: int) -> str:
    """Returns why the process of a trial has failed.

    Args:
        run_dir: the run directory of the trial.
        status: the exit status, negative if a signal has killed the process.
    """
    if status < 0:
        return f"the process was killed by {signal.Signals(-status).name}"
    text = (run_dir / _LOG).read_text("utf-8", "replace")
    *_, last_line = ["", *filter(None, text.splitlines())]
    return last_line or f"the process ended with exit status {status}"


@contextlib.contextmanager
def stopping(on_stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Calls a function at the first signal; a second one ends the program at once.

    A second SIGHUP does nothing, because the shell and the kernel both send it.
    """
    received: list[signal.Signals] = []

    def on_signal(signum: int, frame: FrameType | None) -> None:
        leave_closed_terminal()
        if not received:
            received.append(signal.Signals(signum))
            show_note(f"{received[0].name}: saving; once more ends at once")
            on_stop(received[0])
        elif signum != signal.SIGHUP:
            raise SystemExit(128 + signum)

    with handling(dict.fromkeys(handled_signals(), on_signal)):
        yield
