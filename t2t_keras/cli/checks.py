"""Checks of flags that run before TensorFlow is imported, which takes seconds."""

import argparse
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from t2t_keras.cli.command import KeyValues
from t2t_keras.cli.lines import STDIN, read_lines
from t2t_keras.data.regular_files import is_special
from t2t_keras.errors import UserError
from t2t_keras.options import split_pairs


def require_directory(flag: str, path: str | None) -> None:
    """Refuses a directory that does not exist."""
    if path is not None and not Path(path).is_dir():
        raise UserError(f"--{flag}: there is no directory {path}")


def require_readable(path: str | None) -> None:
    """Refuses a text file that cannot be read; None stands for no file."""
    if path is None:
        return
    # A pipe can be read only once.
    if Path(path).is_file() or Path(path).is_dir() or not Path(path).exists():
        next(read_lines(path), None)


def require_writable(flag: str, path: str | None) -> None:
    """Refuses an output file that cannot be written."""
    if path is None:
        return
    file, parent = Path(path), Path(path).parent
    if not file.absolute().parent.is_dir():
        raise UserError(f"--{flag}: there is no directory {parent}; make it first")
    if file.is_dir():
        raise UserError(f"--{flag}: {path} is a directory; name a file")
    if not os.access(file if file.exists() else parent, os.W_OK):
        raise UserError(f"--{flag}: {path} cannot be written; name another file")


def require_outputs(
    args: argparse.Namespace, written: Mapping[str, Sequence[str | Path]]
) -> None:
    """Refuses output files that cannot be written, or that the command also reads.

    Args:
        args: the flags; what they name, and standard input, is read.
        written: flag -> the files that are written for it, of which the user names the
            first; none if the flag is not given.

    Raises:
        UserError: a file cannot be written, is also read, or is written twice.
    """
    inputs, directories = _named(args, written)
    first: dict[str, str] = {}
    for flag, files in written.items():
        if files:
            require_writable(flag, str(files[0]))
        for number, path in enumerate(map(Path, files)):
            its_name = f", the name that {files[0]} has while it is written,"
            name = f"{path}{its_name if number else ''}"
            if any(_is_same(path, other) for other in inputs):
                raise UserError(f"--{flag}: {name} is the input; name another file")
            if any(_belongs_to(path, directory) for directory in directories):
                raise UserError(
                    f"--{flag}: {name} belongs to {path.parent}, which the command "
                    "reads; name another file"
                )
            if is_special(path):
                continue
            other_flag = first.setdefault(os.path.realpath(path), flag)
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
        if flag in written or flag == "argv":  # it has all words once more
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


def _is_same(path: Path, other: Path | int) -> bool:
    """Returns whether a file that will be written is another, a regular one."""
    try:
        mine, others = os.stat(path), os.stat(other)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mine.st_mode) and os.path.samestat(mine, others)


# The files of data, of a run and of an export that have always the same names.
_OWN_FILES = re.compile(
    r"(config|hparams|t2t_export)\.json|(metrics|history)\.jsonl|SHA256SUMS|vocab\..+"
    r"|.+\.ckpt-.+|.+\.lock|.+\.manifest\.json|.+-\d{5}-of-\d{5}|.+\.index\.npz"
    r"|saved_model\.pb"
)


def _belongs_to(path: Path, directory: Path) -> bool:
    """Returns whether a file is one that makes up data, a run or an export."""
    place = Path(os.path.realpath(path))
    is_inside = place.is_file() and place.parent == Path(os.path.realpath(directory))
    return is_inside and _OWN_FILES.fullmatch(place.name) is not None


def require_lines(
    files: Mapping[str, Sequence[str]], origin: str, lines: Sequence[str]
) -> None:
    """Refuses files with another number of lines than one that they belong to.

    Args:
        files: the lines of each file, by its name.
        origin: the name of the other file, or of what its lines come from.
        lines: the other file's.
    """
    for name, own in files.items():
        if len(own) != len(lines):
            raise UserError(
                f"{name} and {origin} differ in their number of lines, {len(own)} "
                f"and {len(lines)}; line n of one must belong to line n of the other"
            )
