"""Logs: files of JSON objects, one in a line, that programs append to.

They have no checksum. Damaged lines, and lines that a killed process left unfinished,
are skipped with a warning.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from t2t_keras.data.console import say


def open_log(path: Path) -> TextIO:
    """Opens a log for appending.

    A last line that a kill or a full disk left unfinished gets a line break.
    """
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (it is returned)
    size = os.fstat(file.fileno()).st_size
    is_unfinished = size and os.pread(file.fileno(), 1, size - 1) != b"\n"
    if is_unfinished:
        file.write("\n")
    return file


def read_log(
    path: Path,
    is_valid: Callable[[dict[str, Any]], bool] = bool,
    warns: bool = True,
) -> list[dict[str, Any]]:
    """Returns the objects in a log, and warns of lines that are damaged.

    Args:
        path: the file; if it is absent, there are no objects.
        is_valid: returns whether an object is one that a program has written.
        warns: whether to warn; a log that is read again and again warns once.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    objects = []
    damaged: list[int] = []
    for line_number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # it is not JSON or not UTF-8
            value = None
        if isinstance(value, dict) and is_valid(value):
            objects.append(value)
        else:
            damaged.append(line_number)
    if damaged and warns:
        say(
            f"warning: {path}: damaged lines are passed over: {len(damaged)} of "
            f"{len(lines)}, the first is line {damaged[0]}"
        )
    return objects


def without_repeated_steps(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the records of a training in the order of their steps.

    A training that was killed may have recorded steps which it repeats when it is
    resumed; the later records count.

    Args:
        records: objects of a log in its order; each has an integer "step".
    """
    latest: list[dict[str, Any]] = []
    for record in records:
        while latest and latest[-1]["step"] >= record["step"]:
            latest.pop()
        latest.append(record)
    return latest
