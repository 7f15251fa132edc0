"""The processes of the trials: their start, their end, and signals."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from t2t_keras.cores import num_cores
from t2t_keras.data.console import show_note
from t2t_keras.errors import UserError
from t2t_keras.signals import end_with_parent, handled_signals, leave_closed_terminal
from t2t_keras.training.trials import REFUSED
from t2t_keras.visible_gpus import visible_gpus

from .study import SweepStudy
from .trial import SweepTrial, run_dir

LOG = "process.log"  # what the process of a trial prints, in its run directory

_PROGRAM = (
    "import sys; from t2t_keras.plugins.sweep.trial_process import main; "
    "main(*sys.argv[1:])"
)
_POLL_SECONDS = 0.05
# So many failures in a row, before a first step, have a cause outside of the trials.
MAX_FAILURES = 3
_ENDED_BY_SIGNAL = tuple(128 + signum for signum in signal.valid_signals())


class _Running(NamedTuple):
    """A process.

    Attributes:
        process: the process.
        slot: which of the processes that run at a time, from 0; it has its GPU.
        begins: how often the training of the trial had begun before.
    """

    process: subprocess.Popen[bytes]
    slot: int
    begins: int


class Scheduler:
    """Runs trials until there are enough, or a signal comes.

    Args:
        directory: the directory of the sweep.
        study: its study.
        workers: number of processes at a time.
        on_start: called with each trial that is started or resumed.
        on_end: called with each trial that has ended.
    """

    def __init__(
        self,
        directory: Path,
        study: SweepStudy,
        workers: int,
        on_start: Callable[[SweepTrial], None],
        on_end: Callable[[SweepTrial], None],
    ) -> None:
        self._directory = directory
        self._study = study
        self._workers = workers
        self._on_start = on_start
        self._on_end = on_end
        self._running: dict[int, _Running] = {}
        self._failures = 0  # in a row
        self.signal: signal.Signals | None = None

    def run(self, count: int) -> None:
        """Runs trials until `count` have ended, those of earlier calls included.

        After a signal, the running trials save and end, and stay unfinished.

        Raises:
            UserError: the first trial, a resumed one, or several in a row were refused
                before a step. It stays unfinished, so that the same command continues.
        """
        unfinished = self._study.unfinished()
        with self._signals():
            try:
                while True:
                    while not self.signal and len(self._running) < self._workers:
                        index = unfinished.pop(0) if unfinished else self._next(count)
                        if index is None:
                            break
                        self._start(index)
                    if not self._running:
                        return
                    self._await_end()
            finally:
                for running in self._running.values():
                    running.process.kill()
                    running.process.wait()

    def _next(self, count: int) -> int | None:
        """Returns the number of a new trial, if one is wanted and possible now."""
        if len(self._study) >= count or not self._study.is_next_possible():
            return None
        return self._study.start_next()

    def _start(self, index: int) -> None:
        path = run_dir(self._directory, index)
        path.mkdir(parents=True, exist_ok=True)
        slots = {running.slot for running in self._running.values()}
        slot = next(i for i in range(self._workers) if i not in slots)
        parent = os.getpid()
        # -P keeps Python from importing modules of the working directory.
        command = [sys.executable, "-P", "-c", _PROGRAM]
        command += [str(self._directory), str(index)]
        with (path / LOG).open("ab") as log:
            process = subprocess.Popen(
                command,
                env=self._environment(slot),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(parent),
            )
        self._running[index] = _Running(process, slot, self._study.begins(index))
        if self.signal:  # it came while the trial was proposed or started
            process.send_signal(signal.SIGTERM)
        self._on_start(self._study.trial(index))

    def _environment(self, slot: int) -> dict[str, str]:
        """Returns the environment of a process: its GPU, or its share of the cores.

        The share depends on the settings, because the order in which threads add up
        numbers may change their rounding.
        """
        threads = max(1, num_cores() // self._study.settings.workers)
        environment = {"TF_NUM_INTRAOP_THREADS": str(threads)} | os.environ
        if gpus := visible_gpus():
            environment["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
            environment["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        return environment

    def _await_end(self) -> None:
        """Waits until a process has ended, and enters a failure in the study."""
        ended = []
        for index, running in self._running.items():
            if running.process.poll() is not None and not self._awaits_others(index):
                ended.append(index)
        if not ended:
            time.sleep(_POLL_SECONDS)
        for index in ended:
            status = self._running[index].process.returncode
            if self._study.trial(index).state != "running":
                self._failures = 0
            elif self.signal and (status < 0 or status in _ENDED_BY_SIGNAL):
                del self._running[index]
                continue
            else:
                self._fail(index)
            del self._running[index]
            self._on_end(self._study.trial(index))

    def _awaits_others(self, index: int) -> bool:
        """Returns whether other trials will show why a process was refused."""
        if self._has_cause_outside(index) or not self._is_refused(index):
            return False
        return any(
            self._has_cause_outside(probe)
            and running.process.poll() is None
            and not self._has_begun(probe)
            for probe, running in self._running.items()
        )

    def _has_cause_outside(self, index: int) -> bool:
        """Returns whether what refuses a trial would refuse all.

        The first trial has the values of the set. A resumed one was not refused before.
        """
        return index == 0 or self._running[index].begins > 0

    def _has_begun(self, index: int) -> bool:
        return self._study.begins(index) > self._running[index].begins

    def _is_refused(self, index: int) -> bool:
        """Returns whether an error of the user has ended a trial before it began."""
        is_error = self._running[index].process.returncode == REFUSED
        return is_error and not self._has_begun(index)

    def _fail(self, index: int) -> None:
        """Enters a failure in the study, unless its cause is outside of the trial.

        Raises:
            UserError: see `run`.
        """
        reason = self._reason(index, self._running[index].process.returncode)
        is_refused = self._is_refused(index)
        self._failures = self._failures + 1 if is_refused else 0
        if is_refused and (
            self._has_cause_outside(index) or self._failures == MAX_FAILURES
        ):
            raise UserError(f"trial {index}: {reason}")
        self._study.fail(index, reason)

    def _reason(self, index: int, status: int) -> str:
        """Returns why a process has failed."""
        if status < 0:
            return f"the process was killed by {signal.Signals(-status).name}"
        text = (run_dir(self._directory, index) / LOG).read_text("utf-8", "replace")
        *_, last_line = ["", *filter(None, text.splitlines())]
        return last_line or f"the process ended with exit status {status}"

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Passes the first signal on to the processes; a second one ends them."""
        previous: dict[signal.Signals, Any] = {}
        for signum in handled_signals():
            previous[signum] = signal.signal(signum, self._on_signal)
        try:
            yield
        finally:
            for signum, handler in previous.items():
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        leave_closed_terminal()
        if self.signal is None:
            self.signal = signal.Signals(signum)
            show_note(f"{self.signal.name}: saving; once more ends at once")
            for running in self._running.values():
                running.process.send_signal(signal.SIGTERM)
        elif signum != signal.SIGHUP:
            raise SystemExit(128 + signum)
