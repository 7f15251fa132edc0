"""Checks of flags that run before TensorFlow is imported, which takes seconds."""

import argparse
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from t2t_keras.cli.command import KeyValues
from t2t_keras.cli.lines import STDIN, read_lines
from t2t_keras.data.atomic_files import is_pipe, is_special
from t2t_keras.data.text_files import COMPRESSED
from t2t_keras.errors import UserError, short_repr
from t2t_keras.options import split_pairs


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


def require_writable(flag: str, path: str | None) -> None:
    """Refuses an output file that cannot be written."""
    if path is None:
        return
    file = Path(path)
    parent = file.parent
    if not file.absolute().parent.is_dir():
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
    args: argparse.Namespace, written: Mapping[str, Sequence[str | Path]]
) -> None:
    """Refuses output files that cannot be written, or that the command also reads.

    Args:
        args: the flags. The files that they name, and standard input, are read.
        written: flag -> the files that are written for it. The user names the first;
            there are none if the flag is not given.

    Raises:
        UserError: a file cannot be written, is also read, or is written twice.
    """
    inputs, directories = _named(args, written)
    flags_by_path: dict[str, str] = {}
    for flag, files in written.items():
        if files:
            require_writable(flag, str(files[0]))
        for index, path in enumerate(map(Path, files)):
            name = str(path)
            if index:
                name += f", the name that {files[0]} has while it is written,"
            if any(_is_same(path, input_file) for input_file in inputs):
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
    args: argparse.Namespace, written: Collection[str]
) -> tuple[list[Path | int], list[Path]]:
    """Returns the files and the directories that the other flags name."""
    words = list[str]()
    for flag, value in vars(args).items():
        if flag in written or flag == "argv":  # `argv` repeats the words of all flags
            continue
        if isinstance(value, KeyValues):
            words += split_pairs(value.text).values()
        values = value if isinstance(value, list | tuple) else [value]
        words += [str(word) for word in values if isinstance(word, str | Path)]
    # A text may be too long for a path, or have U+0000.
    paths = [Path(word) for word in words if 0 < len(word) < 4096 and "\0" not in word]
    files: list[Path | int] = [path for path in paths if _exists(path, Path.is_file)]
    return [*files, STDIN], [path for path in paths if _exists(path, Path.is_dir)]


def _exists(path: Path, test: Callable[[Path], bool]) -> bool:
    try:
        return test(path)
    except OSError:  # a name is too long
        return False


def _is_same(path: Path, input_file: Path | int) -> bool:
    """Returns whether an output is an input file, if it is a regular file."""
    try:
        output_status = os.stat(path)
        input_status = os.stat(input_file)
    except (OSError, ValueError):
        return False
    is_regular = stat.S_ISREG(output_status.st_mode)
    return is_regular and os.path.samestat(output_status, input_status)


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
