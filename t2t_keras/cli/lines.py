r"""Reading and writing text files: one sentence per line, UTF-8, `\n` only."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal, TextIO

from t2t_keras.data import lines as text_lines
from t2t_keras.data.atomic_files import is_special
from t2t_keras.data.json_files import read_json, write_json
from t2t_keras.data.locks import lock_file
from t2t_keras.data.schema import from_fields
from t2t_keras.data.text_files import open_binary, raw_lines, readable
from t2t_keras.errors import UserError
from t2t_keras.quantity import quantity
from t2t_keras.type_hints import Count

STDIN = 0
STDOUT = 1


def read_lines(path: str | None) -> Iterator[str]:
    """Yields the lines of a file, or of standard input, plain or compressed.

    Raises:
        UserError: it cannot be read, is of another format, or a line is not UTF-8.
    """
    if path is not None:
        yield from text_lines.read_lines(path)
        return
    with open(STDIN, "rb", closefd=False) as file:
        yield from text_lines.stream_lines(file, "standard input")


def count_lines(path: str | Path | None) -> int | None:
    """Returns the number of lines that `read_lines` will yield; None if unknown.

    Only a regular file can be read twice.
    """
    if path is None or not Path(path).is_file():
        return None
    with readable(path), open_binary(path) as file:
        return sum(1 for _ in raw_lines(file, str(path)))


@dataclasses.dataclass(frozen=True)
class OutputRecord:
    """The progress of an incomplete file: the content of `FILE.incomplete.json`.

    Attributes:
        settings: everything that the output depends on except the input.
        lines: the number of input lines whose output is written.
        input: the SHA-256 of these lines.
        bytes: the size of their output.
        done: the counts given to `OutputFile.save`.
    """

    settings: dict[str, Any]
    lines: Count = 0
    input: str = hashlib.sha256().hexdigest()
    bytes: Count = 0
    done: dict[str, Count] = dataclasses.field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Writes the record atomically."""
        write_json(path, dataclasses.asdict(self), with_checksum=True)


class OutputFile:
    """The file that a command writes, with its progress.

    Attributes:
        file: the file to write to.
        saved: the last record; at first that of the process that is resumed, if any.
    """

    def __init__(
        self,
        file: TextIO,
        saved: OutputRecord | None = None,
        record: Path | None = None,
    ) -> None:
        """Takes the open file and, if the file can be resumed, its record."""
        self.file = file
        self.saved = saved or OutputRecord({})
        self._record = record
        self._lines = 0
        self._digest = hashlib.sha256()

    @property
    def done(self) -> dict[str, int]:
        """The counts that were saved last."""
        return self.saved.done

    def unread(self, lines: Iterator[str]) -> Iterator[str]:
        """Yields the lines of the input for which there is no output yet.

        Raises:
            UserError: the lines before them are not those of the process that is
                resumed.
        """
        for line in self._skip(lines) if self.saved.lines else lines:
            self._count(line)
            yield line

    def save(self, **done: int) -> None:
        """Records that the output for all lines that `unread` has yielded is written.

        Args:
            **done: counts that a process needs to continue from here.
        """
        self.file.flush()
        if self._record is None:
            self.saved = dataclasses.replace(self.saved, done=done)
            return
        size = os.fstat(self.file.fileno()).st_size
        digest = self._digest.hexdigest()
        self.saved = OutputRecord(self.saved.settings, self._lines, digest, size, done)
        self.saved.write(self._record)

    def _skip(self, lines: Iterator[str]) -> Iterator[str]:
        """Returns the lines after those of the process that is resumed."""
        for line in itertools.islice(lines, self.saved.lines):
            self._count(line)
        if self._digest.hexdigest() != self.saved.input:
            raise UserError(
                f"--resume: {self._record} is of another input, which differs in the "
                f"first {quantity(self.saved.lines, 'lines')}; give the same --input, "
                "or leave out --resume to start again"
            )
        return lines

    def _count(self, line: str) -> None:
        self._lines += 1
        self._digest.update(f"{line}\n".encode())


def incomplete_files(path: str | Path) -> tuple[Path, Path]:
    """Returns the names of an incomplete file and of its record, see `open_output`."""
    path = os.path.realpath(path)
    return Path(f"{path}.incomplete"), Path(f"{path}.incomplete.json")


@contextlib.contextmanager
def open_output(
    path: str | None, settings: Mapping[str, object], resume: bool = False
) -> Iterator[OutputFile]:
    """Opens a file, or standard output, for writing lines.

    A file gets its name only when it is complete. Until then it is `{path}.incomplete`,
    and `{path}.incomplete.json` has the record of the last `save`. Both remain after a
    kill, an error or Ctrl-C, unless nothing was saved, so that the command can be
    resumed. Standard output, pipes and devices have no record.

    Args:
        path: the file; None: standard output.
        settings: everything that the output depends on except the input.
        resume: whether to continue the incomplete file, if there is one.

    Raises:
        UserError: another process writes the file; or the incomplete file exists
            without a record, or with a record of other settings.
        KeyboardInterrupt: Ctrl-C was pressed; the message names the incomplete file.
    """
    if path is None or is_special(path):
        with _open_text(STDOUT if path is None else path, "w") as file:
            yield OutputFile(file)
        return
    settings = dict(json.loads(json.dumps(settings)))  # tuples become lists
    incomplete, record = incomplete_files(path)
    is_resumed = resume and incomplete.exists()
    with open(incomplete, "a+b") as locked:
        _lock(locked, incomplete)
        size = os.fstat(locked.fileno()).st_size
        if is_resumed:
            saved = _read_record(incomplete, record, settings)
        elif size and not record.exists():  # this program writes a record first
            raise UserError(
                f"--output: {incomplete} exists, the name that {path} has while it is "
                "written, but this program did not write it; rename it, or name "
                "another file"
            )
        else:
            saved = OutputRecord(settings)
            saved.write(record)
        os.truncate(incomplete, saved.bytes)
        output = None
        try:
            with _open_text(incomplete, "a") as file:
                output = OutputFile(file, saved, record)
                yield output
        except BaseException as error:
            saved = output.saved if output else saved
            if not saved.lines:
                incomplete.unlink(missing_ok=True)
                record.unlink(missing_ok=True)
                raise
            os.truncate(incomplete, saved.bytes)
            if not isinstance(error, KeyboardInterrupt):
                raise
            written = count_lines(incomplete) or 0
            raise KeyboardInterrupt(
                f"{incomplete} has {quantity(written, 'lines')} of output; --resume "
                "continues there"
            ) from None
        os.replace(incomplete, os.path.realpath(path))
        record.unlink()


def _lock(file: IO[bytes], path: Path) -> None:
    """Locks an incomplete file.

    Raises:
        UserError: another process is writing it, or has just finished it.
    """
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        lock_file(file, waits=False, path=path)
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return
    raise UserError(
        f"{path}: another process is writing it; wait for it, or name another --output"
    )


def _open_text(file: int | str | Path, mode: Literal["w", "a"]) -> TextIO:
    closefd = not isinstance(file, int)
    return open(file, mode, encoding="utf-8", newline="\n", closefd=closefd)


def _read_record(
    incomplete: Path, record: Path, settings: Mapping[str, object]
) -> OutputRecord:
    """Returns the record of an incomplete file.

    Raises:
        UserError: the file cannot be resumed with these settings.
    """
    advice = "leave out --resume to start again"
    fields = read_json(record, advice)
    if fields is None:
        raise UserError(
            f"--resume: {incomplete} has no record, {record}; rename it or remove "
            "it to start again"
        )
    saved = from_fields(OutputRecord, fields, record)
    changes = []
    for name in {**saved.settings, **settings}:
        old_value = saved.settings.get(name, "the default")
        new_value = settings.get(name, "the default")
        if old_value != new_value:
            changes.append(f"{name} was {old_value}, is now {new_value}")
    if changes:
        raise UserError(
            f"--resume: {incomplete} was written with other settings: "
            f"{'; '.join(changes)}; give the same ones, or {advice}"
        )
    if incomplete.stat().st_size < saved.bytes:
        raise UserError(
            f"--resume: {incomplete} is shorter than {record} says; {advice}"
        )
    return saved
