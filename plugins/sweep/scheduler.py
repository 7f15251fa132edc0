"""The processes of the trials: their start, their end, and signals."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from t2t_keras.devices import num_cores, visible_gpus
from t2t_keras.errors import UserError
from t2t_keras.training.trial_processes import failure_reason, start_trial, stopping
from t2t_keras.training.trials import OCCUPIED, REFUSED

from .refusals import Refusals, has_cause_outside
from .study import SweepStudy
from .trial import SweepTrial, run_dir

_PROGRAM = (
    "import sys; from t2t_keras.plugins.sweep.trial_process import main; "
    "main(*sys.argv[1:])"
)
_POLL_SECONDS = 0.05
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
        self._refusals = Refusals()
        self.signal: signal.Signals | None = None

    def run(self, count: int) -> None:
        """Runs trials until `count` have ended, those of earlier calls included.

        After a signal, the running trials save and end, and stay unfinished.

        Raises:
            UserError: the first trial, a resumed one, or several in a row were refused
                before a step, or an earlier process still trains one. The trial stays
                unfinished, so that the same command continues.
        """
        unfinished = self._study.unfinished()
        with stopping(self._stop):
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
        # -P keeps Python from importing modules of the working directory.
        command = ["-P", "-c", _PROGRAM, str(self._directory), str(index)]
        process = start_trial(command, path, self._environment(slot))
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
                self._refusals.clear()
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
        """Returns whether what refuses a running trial would refuse all."""
        return has_cause_outside(index, self._running[index].begins > 0)

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
        running = self._running[index]
        path = run_dir(self._directory, index)
        reason = failure_reason(path, running.process.returncode)
        if running.process.returncode == OCCUPIED:
            raise UserError(f"trial {index}: {reason}")
        if self._is_refused(index):
            self._refusals.add(index, reason, running.begins > 0)
        else:
            self._refusals.clear()
        self._study.fail(index, reason)

    def _stop(self, received: signal.Signals) -> None:
        """Lets the running trials save and end."""
        self.signal = received
        for running in self._running.values():
            running.process.send_signal(signal.SIGTERM)
