"""The files that a command on a cluster writes, and which of them are finished.

A folder of outputs has a log, `cluster.jsonl`: its first object has the settings on
which the outputs depend, each later one is a finished file. A file appears under its
name when all its lines are written. Of a command that was killed, unfinished files are
written from their beginning.

Faulty lines are listed in `cluster.faults.jsonl`, an object for each. They may be many,
so that they are never all in memory.
"""

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from t2t_keras.errors import UserError
from t2t_keras.files.atomic import lock, open_lines
from t2t_keras.files.json_files import open_log, read_log

_LOG = "cluster.jsonl"
_FAULTS = "cluster.faults.jsonl"
_LOCK = "cluster.lock"
RESERVED_NAMES = (_LOG, _FAULTS, _LOCK)  # which no output can have

Stamp: TypeAlias = list[int]  # of a file, see `stamps`


class OutputFolder:
    """A folder of outputs.

    Args:
        path: the folder, which may be absent.
        settings: everything that the outputs depend on except the inputs.

    Attributes:
        log: the path of the log.
        faults: the path of the list of faulty lines.

    Raises:
        UserError: the folder has outputs of other settings.
    """

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        self.log = path / _LOG
        self.faults = path / _FAULTS
        self._settings = json.loads(json.dumps(settings))  # tuples become lists
        self._is_begun = False
        self.finished()

    def finished(self) -> dict[str, dict[str, Any]]:
        """Returns the log's objects of the finished outputs, by the name of the output.

        Raises:
            UserError: see above.
        """
        entries = read_log(self.log)
        earlier: dict[str, Any] = self._settings
        for entry in entries:
            if "settings" in entry:
                earlier = entry["settings"]
                self._is_begun = True
        changed = []
        for name in {**earlier, **self._settings}:
            if earlier.get(name) != self._settings.get(name):
                changed.append(name)
        if changed:
            raise UserError(
                f"--output: {self.log.parent} has outputs of other settings "
                f"({', '.join(changed)}); name another folder, or give the same ones"
            )
        outputs = {}
        for entry in entries:
            if "output" in entry:
                entry.pop("faulty", None)  # earlier versions listed the lines here
                outputs[entry["output"]] = entry
        return outputs

    def remove_faults(self, outputs: Container[str]) -> None:
        """Removes the faulty lines of outputs that will be written again.

        Args:
            outputs: their names.
        """
        if not self.faults.exists():
            return
        with self.faults.open("rb") as earlier, open_lines(self.faults) as rewritten:
            for row in earlier:
                with contextlib.suppress(ValueError):  # a killed process wrote it
                    if json.loads(row)["output"] not in outputs:
                        rewritten.write(row.decode())

    def finish(
        self,
        inputs: Sequence[Stamp],
        output: Path,
        counts: Mapping[str, float],
        faults: IO[str],
    ) -> dict[str, Any]:
        """Notes that an output is finished; returns the log's object.

        Args:
            inputs: the stamps of the files that were read, from before that.
            output: the file.
            counts: the counts of its lines.
            faults: a file with the rows of its faulty lines, see `fault_row`.
        """
        with output.open("rb") as file:
            os.fsync(file.fileno())
        entry = {
            "output": output.name,
            "size": output.stat().st_size,
            "inputs": inputs,
            "counts": counts,
        }
        if counts["faulty"]:
            faults.seek(0)
            with open_log(self.faults) as log:
                shutil.copyfileobj(faults, log)
                log.flush()
                os.fsync(log.fileno())
        settings = [] if self._is_begun else [{"settings": self._settings}]
        self._is_begun = True
        with open_log(self.log) as log:
            for value in (*settings, entry):
                log.write(json.dumps(value, ensure_ascii=False) + "\n")
            log.flush()
            os.fsync(log.fileno())
        return entry


def fault_row(output: Path, line_number: int, fault: str) -> str:
    """Returns the row of a faulty line in the list of them.

    Args:
        output: the file to which the line belongs.
        line_number: the number of the line, from 1.
        fault: what is wrong with it.
    """
    row = {"output": output.name, "line": line_number, "fault": fault}
    return json.dumps(row, ensure_ascii=False) + "\n"


def stamps(paths: Sequence[Path]) -> list[Stamp]:
    """Returns the size in bytes and the time of the last change of each file."""
    return [[path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def is_finished(facts: Mapping[str, Any], inputs: Sequence[Path], output: Path) -> bool:
    """Returns whether an output and its inputs are as the log's object has them."""
    if not output.exists() or facts.get("size") != output.stat().st_size:
        return False
    return facts.get("inputs") == stamps(inputs)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other commands from writing to a folder.

    Raises:
        UserError: another one does.
    """

    def refusal(holder: str) -> UserError:
        return UserError(
            f"--output: {holder or 'another process'} writes to {folder}; wait for it, "
            "or name another folder"
        )

    purpose = f"process {os.getpid()} on {socket.gethostname()}"
    with lock(folder / _LOCK, refusal, purpose):
        yield
