"""Text that commands read and write: one sentence per line, in UTF-8.

Flags are checked here before TensorFlow is imported, which takes seconds.
"""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO

from filelock import Timeout

from t2t_keras.checking import Count
from t2t_keras.cli.command import Command
from t2t_keras.errors import UserError, printable, quantity, short_repr
from t2t_keras.files import text_files as text_lines
from t2t_keras.files.atomic import is_pipe, is_special, locked
from t2t_keras.files.json_files import from_fields, read_json, write_json
from t2t_keras.files.text_files import COMPRESSED, open_binary, raw_lines, readable

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
        file: TextIO | io.TextIOBase,
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
        for line in itertools.islice(lines, self.saved.lines):
            self._count(line)
        if self._digest.hexdigest() != self.saved.input:
            raise UserError(
                f"--resume: {self._record} is of another input, which differs in the "
                f"first {quantity(self.saved.lines, 'lines')}; give the same --input, "
                "or leave out --resume to start again"
            )
        for line in lines:
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

    def _count(self, line: str) -> None:
        self._lines += 1
        self._digest.update(f"{line}\n".encode())


def incomplete_files(path: str | Path) -> tuple[Path, Path]:
    """Returns the names of an incomplete file and of its record, see `open_output`."""
    path = os.path.realpath(path)
    return Path(f"{path}.incomplete"), Path(f"{path}.incomplete.json")


class _Terminal(io.TextIOBase):
    """Standard output that is a terminal: lines without control characters."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str, /) -> int:
        """Writes a text."""
        return self._file.write(printable(text))

    def flush(self) -> None:
        """Writes what is buffered."""
        self._file.flush()


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
            if path is None and os.isatty(STDOUT):
                yield OutputFile(_Terminal(file))
            else:
                yield OutputFile(file)
        return
    settings = dict(json.loads(json.dumps(settings)))  # tuples become lists
    incomplete, record = incomplete_files(path)
    is_resumed = resume and incomplete.exists()
    with _locked(incomplete):
        size = incomplete.stat().st_size
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


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Locks an incomplete file, which is made if absent.

    Raises:
        UserError: another process is writing it, or has just finished it.
    """
    path.touch()  # `locked` would also make the directory
    with contextlib.ExitStack() as stack:
        is_ours = False
        with contextlib.suppress(Timeout):
            stack.enter_context(locked(path, waits=False))
            is_ours = path.exists()
        if not is_ours:
            raise UserError(
                f"{path}: another process is writing it; wait for it, or name another "
                "--output"
            )
        yield


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


def require_directory(flag: str, path: str | None) -> None:
    """Refuses a directory that does not exist."""
    if path is not None and not Path(path).is_dir():
        raise UserError(f"--{flag}: there is no directory {path}")


def require_utf8(flag: str, path: str) -> None:
    """Refuses a directory with a name that TensorFlow cannot write."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"--{flag}: the name {path} is not UTF-8, and TensorFlow cannot write "
            "such a path; give another name"
        ) from None


def require_readable(path: str | None, advice: str = "") -> None:
    """Refuses a text file that cannot be read; None stands for no file.

    Args:
        path: the file.
        advice: what to do if there is no such file, and a text seems to be meant.
    """
    if path is None:
        return
    if advice and _is_text(path) and not os.path.exists(path):
        raise UserError(f"there is no file {short_repr(path)}; {advice}")
    if not is_pipe(path):
        next(read_lines(path), None)


def _is_text(word: str) -> bool:
    """Returns whether a word looks like a text, not like the name of a file."""
    return " " in word or not ("/" in word or Path(word).suffix)


def _require_writable(flag: str, path: str | Path) -> None:
    """Refuses an output file that cannot be written."""
    file = Path(path)
    parent = file.parent
    if not parent.is_dir():
        raise UserError(f"--{flag}: there is no directory {parent}; make it first")
    if file.is_dir():
        raise UserError(f"--{flag}: {path} is a directory; name a file")
    if file.suffix.lower() in COMPRESSED and not is_special(file):
        raise UserError(
            f"--{flag}: {path} is named as a compressed file, and the output is not "
            f"compressed; leave out {file.suffix}"
        )
    if not os.access(file if file.exists() else parent, os.W_OK):
        raise UserError(f"--{flag}: {path} cannot be written; name another file")


def require_outputs(
    command: Command, written: Mapping[str, Sequence[str | Path]]
) -> None:
    """Refuses output files that cannot be written, or that the command also reads.

    Args:
        command: the command. The files that its flags name, and standard input, are
            read.
        written: flag -> the files that are written for it. The user names the first;
            there are none if the flag is not given.

    Raises:
        UserError: a file cannot be written, is also read, or is written twice.
    """
    inputs, directories = _named(command, written)
    flags_by_path: dict[str, str] = {}
    for flag, files in written.items():
        if files:
            _require_writable(flag, files[0])
        for index, path in enumerate(map(Path, files)):
            name = str(path)
            if index:
                name += f", the name that {files[0]} has while it is written,"
            if any(is_same(path, input_file) for input_file in inputs):
                raise UserError(f"--{flag}: {name} is the input; name another file")
            if any(_belongs_to(path, directory) for directory in directories):
                raise UserError(
                    f"--{flag}: {name} belongs to {path.parent}, which the command "
                    "reads; name another file"
                )
            if is_special(path):
                continue
            other_flag = flags_by_path.setdefault(os.path.realpath(path), flag)
            if other_flag != flag:
                raise UserError(
                    f"--{flag}: it is also --{other_flag}; name another file"
                )


def _named(
    command: Command, written: Collection[str]
) -> tuple[list[Path | int], list[Path]]:
    """Returns the files and the directories that the other flags name."""
    words = list[str]()
    for flag in command.given_flags - set(written):
        value = getattr(command, flag, None)
        values = value if isinstance(value, tuple) else [value]
        words += [str(word) for word in values if isinstance(word, str | Path)]
    # The files among the values of a K=V,K=V flag.
    for word in command.words:
        if not word.startswith(tuple(f"--{flag}=" for flag in written)):
            words += re.split(r"[=,\[\]]", word)[1:]
    # A text may be too long for a path, or have U+0000.
    paths = [Path(word) for word in words if 0 < len(word) < 4096 and "\0" not in word]
    files: list[Path | int] = [path for path in paths if _exists(path, Path.is_file)]
    return [*files, STDIN], [path for path in paths if _exists(path, Path.is_dir)]


def _exists(path: Path, test: Callable[[Path], bool]) -> bool:
    try:
        return test(path)
    except OSError:  # a name is too long
        return False


def is_same(path: Path, file: Path | int) -> bool:
    """Returns whether a path is the regular file at another path or descriptor."""
    try:
        return path.is_file() and os.path.samestat(os.stat(path), os.stat(file))
    except (OSError, ValueError):
        return False


# The names of the files that make up data, a run or an export.
_RESERVED_NAMES = re.compile(
    r"(config|hparams|t2t_export)\.json|(metrics|history|samples)\.jsonl|SHA256SUMS"
    r"|vocab\..+|.+\.ckpt-.+|.+\.lock|.+\.manifest\.json|.+-\d{5}-of-\d{5}|.+\.index\.npz"
    r"|saved_model\.pb"
)


def _belongs_to(path: Path, directory: Path) -> bool:
    """Returns whether a file is one that makes up data, a run or an export."""
    file = Path(os.path.realpath(path))
    is_inside = file.is_file() and file.parent == Path(os.path.realpath(directory))
    return is_inside and _RESERVED_NAMES.fullmatch(file.name) is not None


def require_lines(
    files: Mapping[str, Sequence[str]], origin: str, lines: Sequence[str]
) -> None:
    """Refuses files unless each has as many lines as the reference file.

    Args:
        files: the lines of each file, by its name.
        origin: the name of the reference file, or of the source of its lines.
        lines: the lines of the reference file.
    """
    for name, file_lines in files.items():
        if len(file_lines) != len(lines):
            raise UserError(
                f"{name} and {origin} differ in their number of lines, "
                f"{len(file_lines)} and {len(lines)}; line n of one must belong to "
                "line n of the other"
            )
