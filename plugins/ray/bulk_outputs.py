"""The outputs of a command on a cluster: how they are written, and which are finished.

An output appears under its name when it is complete. A log in the folder of the
outputs, `cluster.jsonl`, has the settings on which they depend, and then an object for
each finished output, which is not written again. Faulty lines are listed in
`cluster.faults.jsonl`. There may be many, so they are never all in memory.
"""

import contextlib
import dataclasses
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.console import progress, say
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import lock, open_lines
from t2t_keras.files.json_files import open_log, read_log

from .bulk_files import FAULTS, LOCK, LOG
from .bulk_worker import Request, Result

_MAX_SHOWN_FAULTS = 20


@dataclasses.dataclass(frozen=True)
class BulkJob:
    """What a command on a cluster does.

    Attributes:
        task: the name of the command, for messages.
        request: the model, and what is asked of it.
        inputs: the files of each output: one, or those of sources and of targets.
        outputs: the output of each, in one folder.
        settings: everything that the outputs depend on except the inputs.
    """

    task: str
    request: Request
    inputs: list[tuple[Path, ...]]
    outputs: list[Path]
    settings: Mapping[str, object]

    @property
    def folder(self) -> Path:
        """The folder of the outputs."""
        return self.outputs[0].parent


@contextlib.contextmanager
def lock_outputs(folder: Path) -> Iterator[None]:
    """Keeps other commands from writing to a folder.

    Raises:
        UserError: another one does.
    """

    def refusal(holder: str) -> UserError:
        return UserError(
            f"--output: {holder or 'another process'} writes to {folder}; wait for it, "
            "or name another folder"
        )

    with lock(folder / LOCK, refusal):
        yield


def finished_outputs(job: BulkJob) -> dict[int, dict[str, Any]]:
    """Returns the log's objects of the finished outputs, by the index of the file.

    An output is not finished if it or an input has changed.

    Raises:
        UserError: the folder has outputs with other settings.
    """
    settings = json.loads(json.dumps(job.settings))  # tuples become lists
    entries = {}
    for entry in read_log(job.folder / LOG):
        if "output" in entry:
            entries[entry["output"]] = entry
            continue
        earlier = entry.get("settings", {})
        names = {**earlier, **settings}
        changed = [x for x in names if earlier.get(x) != settings.get(x)]
        if changed:
            raise UserError(
                f"--output: {job.folder} has outputs of other settings "
                f"({', '.join(changed)}); name another folder, or give the same ones"
            )
    finished = {}
    for file, (paths, output) in enumerate(zip(job.inputs, job.outputs, strict=True)):
        entry = entries.get(output.name, {})
        if (
            output.exists()
            and entry.get("size") == output.stat().st_size
            and entry.get("inputs") == _stamps(paths)
        ):
            finished[file] = entry
    return finished


class _UnreadableInput(UserError):
    """An input cannot be read to its end; its output is removed."""


def write_outputs(
    job: BulkJob, files: Sequence[int], results: Iterable[Result]
) -> list[str]:
    """Writes the outputs of some files; returns why others cannot be read.

    Args:
        job: the job.
        files: the indices of the files.
        results: their results, in this order.
    """
    stamps = {file: _stamps(job.inputs[file]) for file in files}
    _remove_faults(job, files)
    mistakes = []
    shown_faults = 0
    with progress(job.task, "lines") as advance:
        for file, results_of_file in itertools.groupby(results, lambda x: x.file):
            counts = Counter[str]()
            try:
                with open_lines(job.outputs[file]) as output:
                    for result in results_of_file:
                        output.writelines(result.rows)
                        counts.update(result.counts)
                        shown_faults += _list_faults(job, result, shown_faults)
                        advance(len(result.rows))
                        if result.mistake:
                            raise _UnreadableInput(result.mistake)
                        if result.is_last:  # the next result may be an error
                            break
            except _UnreadableInput as error:
                mistakes.append(str(error))
                continue
            _log_output(job, file, stamps[file], counts)
    return mistakes


def _list_faults(job: BulkJob, result: Result, shown_before: int) -> int:
    """Lists the faulty lines of a chunk, and shows the first ones of a job.

    Args:
        job: the job.
        result: the result of the chunk.
        shown_before: the number of faulty lines in earlier chunks.

    Returns:
        The number of faulty lines in the chunk.
    """
    if not result.faults:
        return 0
    output = job.outputs[result.file]
    rows = []
    for index, (line, fault) in enumerate(result.faults.items(), shown_before):
        rows.append({"output": output.name, "line": line, "fault": fault})
        if index < _MAX_SHOWN_FAULTS:
            path = job.inputs[result.file][0]
            say(f"{path}, line {line}: {fault}; its output is empty")
        elif index == _MAX_SHOWN_FAULTS:
            say(f"further faulty lines are listed in {job.folder / FAULTS}")
    _append(job.folder / FAULTS, rows)
    return len(rows)


def _remove_faults(job: BulkJob, files: Sequence[int]) -> None:
    """Removes the faulty lines of outputs that are written again from their list."""
    path = job.folder / FAULTS
    if not path.exists():
        return
    outputs = {job.outputs[file].name for file in files}
    with path.open("rb") as earlier, open_lines(path) as rewritten:
        for row in earlier:
            with contextlib.suppress(ValueError):  # a killed process wrote it
                if json.loads(row)["output"] not in outputs:
                    rewritten.write(row.decode())


def _log_output(
    job: BulkJob, file: int, stamps: list[list[int]], counts: Mapping[str, float]
) -> None:
    """Notes that an output is finished.

    Args:
        job: the job.
        file: the index of the file.
        stamps: the stamps of the inputs before they were read.
        counts: the sums over its lines.
    """
    output = job.outputs[file]
    with output.open("rb") as content:
        os.fsync(content.fileno())
    log = job.folder / LOG
    entry = {
        "output": output.name,
        "size": output.stat().st_size,
        "inputs": stamps,
        "counts": counts,
    }
    _append(log, [entry] if log.exists() else [{"settings": job.settings}, entry])


def _append(path: Path, values: Iterable[Mapping[str, object]]) -> None:
    """Appends objects to a log, and waits until they are on the disk."""
    with open_log(path) as log:
        for value in values:
            log.write(json.dumps(value, ensure_ascii=False) + "\n")
        log.flush()
        os.fsync(log.fileno())


def _stamps(paths: Sequence[Path]) -> list[list[int]]:
    """Returns the size in bytes and the time of the last change of each file."""
    return [[path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
