"""Finds the files of a treebank."""

import re
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.files.atomic import refuse_pipes
from t2t_keras.files.text_files import readable

# The Wall Street Journal's file NN of section SS: wsj_SSNN.mrg.
_WSJ_FILE = re.compile(r"wsj_(\d{4})\.mrg(\.gz)?", re.IGNORECASE)
_SECTIONS = re.compile(r"(\d\d|\d{4})(?:-(\d\d|\d{4}))?")


def tree_files(path: str | Path, sections: str = "") -> list[Path]:
    """Returns the file itself, or a directory's `.mrg` and `.mrg.gz` files in order.

    Args:
        path: a file, or a directory, searched recursively.
        sections: the files to return, if they are named `wsj_SSNN.mrg`, as in the
            Linguistic Data Consortium's Wall Street Journal: sections (`02-21`), files
            (`0001-0159`) or a list (`00,01,24`). Empty: all files.

    Raises:
        UserError: there are no such files, or none in the sections, or there is a pipe,
            since treebanks are read several times.
    """
    path = Path(path)
    refuse_pipes(path)
    ranges = _ranges(sections)
    if path.is_file():
        files = [path]
    elif path.is_dir():
        with readable(path):
            below = list(path.rglob("*"))
        files = sorted(file for file in below if file.is_file() and is_treebank(file))
        if not files:
            raise UserError(f"{path}: the directory has no .mrg or .mrg.gz file")
    else:
        raise UserError(f"{path}: there is no such file or directory of trees")
    if not sections:
        return files
    file_numbers = {}
    for file in files:
        if match := _WSJ_FILE.fullmatch(file.name):
            file_numbers[file] = int(match[1])
    selected: set[Path] = set()
    for item, file_range in ranges.items():
        matches = {file for file, n in file_numbers.items() if n in file_range}
        if not matches:
            raise UserError(
                f"{path}: no file wsj_SSNN.mrg is in the sections {item}; give others "
                "(--train_sections, --dev_sections, --test_sections)"
            )
        selected |= matches
    return [file for file in files if file in selected]


def is_treebank(path: str | Path) -> bool:
    """Returns whether a path is a directory, or a file named `.mrg` or `.mrg.gz`."""
    path = Path(path)
    return path.is_dir() or path.name.lower().endswith((".mrg", ".mrg.gz"))


def _ranges(sections: str) -> dict[str, range]:
    """Returns the range of file numbers SSNN for each item in the list `sections`."""
    ranges = {}
    for item in sections.replace(" ", "").split(",") if sections else ():
        match = _SECTIONS.fullmatch(item)
        if match is None:
            raise UserError(
                f"sections: '{item}' is neither a section (02), a file of one (0203) "
                "nor a range of them (02-21)"
            )
        # A section stands for all its files: 02-21 is 0200 to 2199.
        start = int(f"{match[1]:0<4}")
        stop = int(f"{match[2] or match[1]:9<4}") + 1
        if start >= stop:
            raise UserError(f"sections: the range '{item}' ends before it begins")
        ranges[item] = range(start, stop)
    return ranges
