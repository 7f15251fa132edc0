"""Reads many files, has their lines computed on a cluster, and writes the outputs."""

import contextlib
import dataclasses
import itertools
import math
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from t2t_keras.console import duration, say, speed
from t2t_keras.errors import UserError, quantity
from t2t_keras.files.atomic import open_lines

from .cluster import connected, require_capacity
from .faulty_lines import CheckedFile
from .flags import WorkerSize
from .nodes import require_same_nodes
from .output_files import OutputFolder, fault_row, is_finished, locked, stamps
from .text_worker import Request
from .windows import (
    Batch,
    Line,
    Window,
    batches_by_length,
    chunk_windows,
    whole_batch,
    windows,
)
from .worker_pool import Failure, WorkerPool

_SECONDS_BETWEEN_REPORTS = 10.0
_MAX_SHOWN_FAULTS = 20
_SPOOLED_BYTES = 1 << 20  # of the faulty lines of an output; more are in a file
# Windows that are computed at the same time, so that no worker waits for the last
# batch of a window.
_OPEN_WINDOWS = 3


@dataclasses.dataclass(frozen=True)
class BulkJob:
    """What a command on a cluster does.

    Attributes:
        task: the name of the command, for messages.
        request: the model, and what is asked of it.
        inputs: the files of each output: one, or those of sources and of targets.
        outputs: the output of each.
        folder: the folder of the outputs.
        settings: everything that the outputs depend on except the inputs.
        read: the paths that all nodes must have.
        faulty_row: returns what is written for a faulty line, given its number.
    """

    task: str
    request: Request
    inputs: list[tuple[Path, ...]]
    outputs: list[Path]
    folder: Path
    settings: Mapping[str, object]
    read: list[Path]
    faulty_row: Callable[[int], str]


def run_job(
    job: BulkJob, address: str, size: WorkerSize, workers: int | None
) -> dict[str, float]:
    """Does a job; returns the counts of lines and files.

    Args:
        job: the job.
        address: the address of the cluster.
        size: what a worker takes.
        workers: the number of workers; None: as many as fit.

    Raises:
        UserError: the cluster cannot do the job, all workers are lost, or an input
            cannot be read; the outputs of the other inputs are complete then.
    """
    start = time.monotonic()
    folder = OutputFolder(job.folder, job.settings)
    files = list(map(_File, job.inputs, job.outputs))
    done_before = _find_finished(folder, files)
    if done_before:
        total = quantity(len(files), "files")
        say(f"{job.task}: done already: {done_before:,} of {total}")
    counts = Counter[str]()
    if done_before < len(files):
        with connected(address):
            count = require_capacity(size, workers)
            require_same_nodes(job.read)
            with locked(job.folder):
                _find_finished(folder, files)
                folder.remove_faults(
                    {file.output.name for file in files if file.facts is None}
                )
                counts = _Run(job, folder, files, size, count).finish()
    facts = Counter({"lines": 0})
    for file in files:
        facts.update((file.facts or {}).get("counts", {}))
    result: dict[str, float] = {
        "files": len(files),
        "done_before": done_before,
        **facts,
        **counts,
    }
    broken = [file.mistake for file in files if file.mistake]
    if broken:
        other_files = quantity(len(broken) - 1, "other files")
        further = f" ({other_files} as well)" if broken[1:] else ""
        raise UserError(f"{broken[0]}{further}; the other outputs are complete")
    return result | {"seconds": round(time.monotonic() - start, 2)}


def _find_finished(folder: OutputFolder, files: "list[_File]") -> int:
    """Notes which outputs are finished; returns their number.

    An output is written again if it or an input has changed.
    """
    finished = folder.finished()
    for file in files:
        facts = finished.get(file.output.name, {})
        file.facts = facts if is_finished(facts, file.inputs, file.output) else None
    return sum(file.facts is not None for file in files)


class _File:
    """The inputs of one output.

    Attributes:
        inputs: the files.
        output: the path of the output.
        stamps: of the inputs, before they are read.
        size: the bytes of the inputs.
        readers: the open files.
        facts: the log's object, once the output is finished.
        mistake: why the output cannot be written; "": it can.
    """

    def __init__(self, inputs: tuple[Path, ...], output: Path) -> None:
        self.inputs = inputs
        self.output = output
        self.stamps = stamps(inputs)
        self.size = sum(size for size, _ in self.stamps)
        self.readers: list[CheckedFile] = []
        self.facts: dict[str, Any] | None = None
        self.mistake = ""

    @property
    def position(self) -> int:
        """How many bytes are read."""
        return sum(reader.position for reader in self.readers)

    def lines(self, index: int) -> Iterator[Line]:
        """Yields the lines; stops at a mistake, which it notes.

        Args:
            index: the index of the file.
        """
        try:
            self.readers = list(map(CheckedFile, self.inputs))
            rows = itertools.zip_longest(*(reader.lines() for reader in self.readers))
            for line_number, row in enumerate(rows, 1):
                if None in row:
                    names = " and ".join(map(str, self.inputs))
                    raise UserError(f"{names} differ in their number of lines")
                texts, faults = zip(*row, strict=True)
                fault = next(filter(None, faults), "")
                yield Line(index, line_number, texts, fault)
        except UserError as error:
            self.mistake = str(error)


class _Run:
    """The work on the files that are not finished."""

    def __init__(
        self,
        job: BulkJob,
        folder: OutputFolder,
        files: list[_File],
        size: WorkerSize,
        workers: int,
    ) -> None:
        self._job = job
        self._files = files
        self._count = workers
        self._windows: deque[Window] = deque()
        self._counts = Counter[str]()
        self._writer = _Writer(job, folder, files)
        self._progress = _Progress(job.task, files)
        self._pool = WorkerPool(job.request, size, workers, tick=self._progress.report)

    def finish(self) -> Counter[str]:
        """Does the work; returns sums over all lines that were computed."""
        say(
            f"{self._job.task}: {quantity(self._count, 'workers')} of {self._pool.size}"
        )
        with self._writer:
            for batch, outcome in self._pool.outcomes(self._batches()):
                if isinstance(outcome, Failure):
                    self._handle(batch, outcome)
                else:
                    for i, row in zip(batch.indices, outcome.rows, strict=True):
                        batch.window.rows[i] = row
                    self._counts.update(outcome.counts)
                    self._progress.lines += len(batch.indices)
                self._write()
            self._write()
            self._writer.finish_to(len(self._files))
        return self._counts

    def _batches(self) -> Iterator[Batch | None]:
        """Yields the batches of all windows; None: too many windows are open."""
        samples = bool(self._job.request.options.get("sampling"))
        lines = self._lines()
        source = chunk_windows(lines) if samples else windows(lines, self._count)
        limit = _OPEN_WINDOWS * (self._count if samples else 1)
        while True:
            # A window without intact lines is complete at once.
            self._write()
            while len(self._windows) >= limit:
                yield None
            window = next(source, None)
            if window is None:
                return
            self._windows.append(window)
            for i, line in enumerate(window.lines):
                if line.fault:
                    window.rows[i] = self._job.faulty_row(line.number)
                else:
                    self._progress.lines_read += 1
            if samples:
                yield from whole_batch(window)
            else:
                yield from batches_by_length(window, self._count)

    def _lines(self) -> Iterator[Line]:
        for index, file in enumerate(self._files):
            if file.facts is None:
                yield from file.lines(index)

    def _handle(self, batch: Batch, failure: Failure) -> None:
        """Computes the halves of a batch that failed; notes the fault of a line."""
        if len(batch.indices) > 1:
            self._pool.repeat(batch.halves())
            return
        window = batch.window
        (index,) = batch.indices
        line = window.lines[index]
        window.lines[index] = line._replace(fault=failure.reason)
        window.rows[index] = self._job.faulty_row(line.number)

    def _write(self) -> None:
        """Writes the windows that are complete, in their order."""
        while self._windows and self._windows[0].is_complete:
            window = self._windows.popleft()
            for line, row in zip(window.lines, window.rows, strict=True):
                self._writer.write(line, row or "")


class _Writer(contextlib.AbstractContextManager["_Writer"]):
    """Writes the outputs in the order of the files, each under its name when complete.

    Attributes:
        faults: the number of faulty lines.
    """

    def __init__(self, job: BulkJob, folder: OutputFolder, files: list[_File]) -> None:
        self._job = job
        self._folder = folder
        self._files = files
        self._index = 0  # of the file that is written
        self._stack = contextlib.ExitStack()
        self._output: TextIO | None = None
        self._begin()
        self.faults = 0

    def _begin(self) -> None:
        """Forgets the counts and the faulty lines of the previous output."""
        self._counts: dict[str, float] = {"faulty": 0}
        self._faults = tempfile.SpooledTemporaryFile(  # noqa: SIM115  (`finish_to`)
            _SPOOLED_BYTES, "w+", encoding="utf-8"
        )

    def __exit__(self, *error: Any) -> bool | None:
        """Removes the output that is not complete, if there is an error."""
        self._faults.close()
        return self._stack.__exit__(*error)

    def write(self, line: Line, row: str) -> None:
        """Writes the row of a line."""
        self.finish_to(line.file)
        if self._output is None:
            path = self._files[line.file].output
            self._output = self._stack.enter_context(open_lines(path))
        self._output.write(row)
        self._count("lines", 1)
        if line.fault:
            self._list_fault(line)
        elif self._job.request.scores_pairs:
            log_prob, tokens = row.split("\t")[:2]
            if float(log_prob) > -math.inf:
                self._count("log_prob", float(log_prob))
                self._count("tokens", int(tokens))

    def _count(self, name: str, amount: float) -> None:
        self._counts[name] = self._counts.get(name, 0) + amount

    def _list_fault(self, line: Line) -> None:
        """Lists and shows the fault of a line."""
        self.faults += 1
        self._count("faulty", 1)
        file = self._files[line.file]
        self._faults.write(fault_row(file.output, line.number, line.fault))
        if self.faults <= _MAX_SHOWN_FAULTS:
            say(
                f"{file.inputs[0]}, line {line.number}: {line.fault}; its output is "
                "empty"
            )
        elif self.faults == _MAX_SHOWN_FAULTS + 1:
            say(f"further faulty lines are listed in {self._folder.faults}")

    def finish_to(self, index: int) -> None:
        """Completes the files before one, also those without lines."""
        while self._index < index:
            file = self._files[self._index]
            if file.mistake:
                self._discard()
            elif file.facts is None:
                self._complete(file)
            self._faults.close()
            self._begin()
            self._index += 1

    def _complete(self, file: _File) -> None:
        if self._output is None:  # it has no lines
            self._stack.enter_context(open_lines(file.output))
        self._output = None
        self._stack.close()
        file.facts = self._folder.finish(
            file.stamps, file.output, self._counts, self._faults
        )

    def _discard(self) -> None:
        """Removes the output of a file that cannot be read to its end."""
        self._output = None
        with contextlib.suppress(_Discarded), self._stack:
            raise _Discarded
        self._stack = contextlib.ExitStack()


class _Discarded(Exception):
    """Leaves `open_lines` without a file."""


class _Progress:
    """Reports lines per second and the remaining time, on standard error.

    Attributes:
        lines: the number of lines that are computed.
        lines_read: the number of lines that are read, those that are faulty left out.
    """

    def __init__(self, task: str, files: list[_File]) -> None:
        self._task = task
        self._files = [file for file in files if file.facts is None]
        self._start = time.monotonic()
        self._reported = self._start
        self.lines = 0
        self.lines_read = 0

    def report(self, workers: int) -> None:
        """Prints a line if the last one is old enough.

        Args:
            workers: the number of workers at the moment.
        """
        current_time = time.monotonic()
        if current_time - self._reported < _SECONDS_BETWEEN_REPORTS:
            return
        self._reported = current_time
        seconds = current_time - self._start
        size = 0
        position = 0
        for file in self._files:
            size += file.size
            position += file.position
        share = position / max(size, 1)
        rate = speed(self.lines / seconds, "lines")
        say(
            f"{self._task}: {quantity(self.lines, 'lines')} "
            f"({rate}{self._eta(seconds, share)}), {quantity(workers, 'workers')}"
        )

    def _eta(self, seconds: float, share: float) -> str:
        """Returns the remaining time as a text; "": it is not known yet.

        Args:
            seconds: the time since the start.
            share: the share of the input that is read, whose lines are counted.
        """
        if not (self.lines and share):
            return ""
        remaining = max(self.lines_read / share - self.lines, 0)
        return f", ETA {duration(seconds * remaining / self.lines)}"
