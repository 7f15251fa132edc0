"""The processes that train trials: their start, their end, and signals."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from t2t_keras.devices import num_cores, visible_gpus
from t2t_keras.display import show_note
from t2t_keras.errors import UserError
from t2t_keras.processes import (
    end_with_parent,
    handled_signals,
    handling,
    leave_closed_terminal,
)

from ..reports.run_facts import metric_records
from .study import ClaimedTrial, SweepStudy, SweepTrial

_POLL_SECONDS = 0.25
_LOG = "process.log"  # what the process of a trial prints, in its run directory
# -P keeps Python from importing modules of the working directory.
_TRAIN = ("-P", "-c", "import sys; from t2t_keras.cli import main; sys.exit(main())")
_ERROR = "t2t train: error: "
_REFUSED = 2  # the exit status after a user's mistake
_ENDED_BY_SIGNAL = tuple(128 + signum for signum in signal.valid_signals())


@dataclasses.dataclass
class _Running:
    """A process.

    Attributes:
        trial: what it trains.
        process: the process.
        slot: which of the processes that run at a time, from 0; it has its GPU.
        is_pruned: whether the trial was pruned, so that the process must end.
    """

    trial: ClaimedTrial
    process: subprocess.Popen[bytes]
    slot: int
    is_pruned: bool = False


class TrialRunner:
    """Runs trials until all have ended, or a signal comes.

    Args:
        study: the study, on which other processes may work as well.
        workers: number of processes at a time.
        on_start: called with each trial that is started or resumed here.
        on_end: called with each trial that has ended here or elsewhere.

    Attributes:
        signal: the signal that has ended the sweep, if any.
    """

    def __init__(
        self,
        study: SweepStudy,
        workers: int,
        on_start: Callable[[ClaimedTrial], None],
        on_end: Callable[[SweepTrial], None],
    ) -> None:
        self._study = study
        self._workers = workers
        self._on_start = on_start
        self._on_end = on_end
        self._running: list[_Running] = []
        self.signal: signal.Signals | None = None

    def run(self, count: int) -> None:
        """Runs trials until `count` have ended, those of other processes included.

        After a signal, the running trials save and end, and stay unfinished.

        Raises:
            UserError: the first trial, which has the values of the set, was refused
                before its first step. It stays unfinished.
        """
        ended = {x.index for x in self._study.trials() if x.state != "running"}
        with _stopping(self._stop):
            try:
                while True:
                    self._start_trials(count)
                    for running in [*self._running]:
                        self._watch(running)
                    for trial in self._study.trials():
                        if trial.state != "running" and trial.index not in ended:
                            ended.add(trial.index)
                            self._on_end(trial)
                    is_last = bool(self.signal) or ended.issuperset(range(count))
                    if is_last and not self._running:
                        return
                    time.sleep(_POLL_SECONDS)
            finally:
                for running in self._running:
                    running.process.kill()
                    running.process.wait()
                    running.trial.release()

    def _start_trials(self, count: int) -> None:
        while not self.signal and len(self._running) < self._workers:
            trial = self._study.claim(count)
            if trial is None:
                return
            self._on_start(trial)
            slots = {running.slot for running in self._running}
            slot = next(i for i in range(self._workers) if i not in slots)
            process = self._start(trial, slot)
            self._running.append(_Running(trial, process, slot))
            if self.signal:  # it came while the trial was proposed or started
                process.send_signal(signal.SIGTERM)

    def _start(self, trial: ClaimedTrial, slot: int) -> "subprocess.Popen[bytes]":
        """Starts the process of a trial, which ends with this one."""
        settings = self._study.settings
        command = [sys.executable, *_TRAIN, "train"]
        command += settings.train_flags(trial.hparams, trial.run_dir)
        command += ["--train_steps", str(trial.steps), "--seed", str(settings.seed)]
        for name, value in settings.options.items():
            command += [f"--{name}", str(value)]
        parent = os.getpid()
        with (trial.run_dir / _LOG).open("ab") as log:
            return subprocess.Popen(
                command,
                env=self._environment(slot),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(parent),
            )

    def _environment(self, slot: int) -> dict[str, str]:
        """Returns the environment of a process: its GPU, or its share of the cores.

        The share depends on the settings, because the order in which threads add up
        numbers may change their rounding.
        """
        threads = max(1, num_cores() // self._study.settings.workers)
        environment = {"TF_NUM_INTRAOP_THREADS": str(threads)} | os.environ
        if gpus := visible_gpus():
            environment["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
        return environment

    def _watch(self, running: _Running) -> None:
        """Records what a process has reported, and its end."""
        trial = running.trial
        status = running.process.poll()  # before its last evaluation is read
        if not running.is_pruned and trial.is_behind(self._scores(trial)):
            running.is_pruned = True
            running.process.send_signal(signal.SIGTERM)
        if status is None:
            return
        is_stopped = self.signal and (status < 0 or status in _ENDED_BY_SIGNAL)
        if status == 0 and not running.is_pruned:
            trial.complete()
        elif not (is_stopped or running.is_pruned):
            self._fail(trial, status)
        self._running.remove(running)
        trial.release()

    def _scores(self, trial: ClaimedTrial) -> dict[int, float]:
        """Returns the scores of the evaluations so far by step."""
        scores = {}
        for record in metric_records(trial.run_dir, warns=False)["dev"]:
            scores[record["step"]] = float(record[self._study.settings.metric])
        return scores

    def _fail(self, trial: ClaimedTrial, status: int) -> None:
        """Enters a failure in the study, unless its cause is outside of the trial.

        Raises:
            UserError: see `run`.
        """
        reason = _failure_reason(trial.run_dir, status)
        has_begun = any(metric_records(trial.run_dir, warns=False).values())
        if trial.index == 0 and status == _REFUSED and not has_begun:
            raise UserError(f"trial 0: {reason}")
        trial.fail(reason)

    def _stop(self, received: signal.Signals) -> None:
        """Lets the running trials save and end."""
        self.signal = received
        for running in self._running:
            running.process.send_signal(signal.SIGTERM)


def _failure_reason(run_dir: Path, status: int) -> str:
    """Returns why the process of a trial has failed.

    Args:
        run_dir: the run directory of the trial.
        status: the exit status, negative if a signal has killed the process.
    """
    if status < 0:
        return f"the process was killed by {signal.Signals(-status).name}"
    text = (run_dir / _LOG).read_text("utf-8", "replace")
    *_, last_line = ["", *filter(None, text.splitlines())]
    reason = last_line.removeprefix(_ERROR)
    return reason or f"the process ended with exit status {status}"


@contextlib.contextmanager
def _stopping(on_stop: Callable[[signal.Signals], None]) -> Iterator[None]:
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
