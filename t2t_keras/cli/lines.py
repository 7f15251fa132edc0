r"""Reading and writing text files: one sentence per line, UTF-8, `\n` only."""

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TextIO

from t2t_keras.data import lines as text_lines
from t2t_keras.data.files import is_special, lock_file, read_json, write_json
from t2t_keras.data.text_files import open_binary, raw_lines, readable
from t2t_keras.option import UserError

STDIN, STDOUT = 0, 1


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


class OutputFile:
    """The lines that a verb writes, and how far it has come.

    Attributes:
        file: the file to write to.
        done: the counts given to the last `save`; at first those of the process that
            is resumed, if any.
    """

    def __init__(
        self,
        file: TextIO,
        record: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        saved: dict[str, Any] | None = None,
    ) -> None:
        """Takes the open file, and for `open_output` the record that it keeps."""
        self.file = file
        self.done: dict[str, int] = saved["done"] if saved else {}
        self._record = record
        self._settings = settings
        self._saved = saved
        self._lines, self._digest = 0, hashlib.sha256()

    def unread(self, lines: Iterator[str]) -> Iterator[str]:
        """Yields the lines of the input for which there is no output yet.

        Raises:
            UserError: the lines before them are not those of the process that is
                resumed.
        """
        for line in lines if self._saved is None else self._skip(lines, self._saved):
            self._count(line)
            yield line

    def save(self, **done: int) -> None:
        """Records that the output for all lines that `unread` has yielded is written.

        Args:
            **done: counts that a process needs to continue from here.
        """
        self.file.flush()
        self.done = done
        if self._record is not None:
            saved = {
                "settings": self._settings,
                "lines": self._lines,
                "input": self._digest.hexdigest(),
                "bytes": os.fstat(self.file.fileno()).st_size,
                "done": done,
            }
            write_json(self._record, saved)

    def _skip(self, lines: Iterator[str], saved: dict[str, Any]) -> Iterator[str]:
        """Returns the lines after those of the process that is resumed."""
        for line in itertools.islice(lines, saved["lines"]):
            self._count(line)
        if self._digest.hexdigest() != saved["input"]:
            raise UserError(
                f"--resume: {self._record} is of another input, whose first "
                f"{saved['lines']:,} lines are not those of this one; give the same "
                "--input, or leave out --resume to start again"
            )
        return lines

    def _count(self, line: str) -> None:
        self._lines += 1
        self._digest.update(f"{line}\n".encode())


@contextlib.contextmanager
def open_output(
    path: str | None, settings: Mapping[str, Any], resume: bool = False
) -> Iterator[OutputFile]:
    """Opens a file, or standard output, for writing lines.

    A file gets its name only when it is complete. Until then it is `{path}.incomplete`,
    and `{path}.incomplete.json` has what the last `save` recorded. Both remain after a
    kill, an error or Ctrl-C, unless nothing was saved; then the process can be resumed.
    Standard output, pipes and devices have no record.

    Args:
        path: the file; None: standard output.
        settings: all that the output depends on except the input.
        resume: whether to continue the incomplete file, if there is one.

    Raises:
        UserError: another process writes the file, or the incomplete file has no
            record, or one with other settings.
        KeyboardInterrupt: Ctrl-C was pressed; the message names the incomplete file.
    """
    if path is None or is_special(path):
        with _open_text(STDOUT if path is None else path, "w") as file:
            yield OutputFile(file)
        return
    settings = json.loads(json.dumps(settings))  # as they are read later
    path = os.path.realpath(path)
    incomplete, record = Path(f"{path}.incomplete"), Path(f"{path}.incomplete.json")
    is_resumed = resume and incomplete.exists()
    with incomplete.open("ab") as own:
        try:
            lock_file(own, waits=False)
        except BlockingIOError:
            raise UserError(
                f"{incomplete}: another process is writing it; wait for it, or name "
                "another --output"
            ) from None
        if is_resumed:
            saved = _resumable(incomplete, record, settings)
        else:
            saved = {"settings": settings, "lines": 0, "bytes": 0, "done": {}}
            saved |= {"input": hashlib.sha256().hexdigest()}
            write_json(record, saved)
        os.truncate(incomplete, saved["bytes"])
        try:
            with _open_text(incomplete, "a") as file:
                yield OutputFile(file, record, settings, saved)
        except BaseException as error:
            saved = read_json(record)
            if not saved["lines"]:
                incomplete.unlink(missing_ok=True)
                record.unlink()
                raise
            os.truncate(incomplete, saved["bytes"])
            if not isinstance(error, KeyboardInterrupt):
                raise
            raise KeyboardInterrupt(
                f"the first {count_lines(incomplete):,} lines of output are in "
                f"{incomplete}; --resume continues there"
            ) from None
        os.replace(incomplete, path)
        record.unlink()


def _open_text(file: int | str | Path, mode: Literal["w", "a"]) -> TextIO:
    closefd = not isinstance(file, int)
    return open(file, mode, encoding="utf-8", newline="\n", closefd=closefd)


def _resumable(
    incomplete: Path, record: Path, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the record of an incomplete file.

    Raises:
        UserError: the file cannot be resumed with these settings.
    """
    again = "leave out --resume to start again"
    saved = read_json(record, again)
    if saved is None:
        raise UserError(f"--resume: {incomplete} has no record, {record}; {again}")
    names = [*saved["settings"], *settings]
    changes = [
        f"{name} was {was}, is now {now}"
        for name in dict.fromkeys(names)
        if (was := saved["settings"].get(name, "the default"))
        != (now := settings.get(name, "the default"))
    ]
    if changes:
        raise UserError(
            f"--resume: {incomplete} was written with other settings: "
            f"{'; '.join(changes)}; give the same ones, or {again}"
        )
    if incomplete.stat().st_size < saved["bytes"]:
        raise UserError(
            f"--resume: {incomplete} is shorter than {record} says; {again}"
        )
    return saved
