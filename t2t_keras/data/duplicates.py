"""Finds pairs that occur more than once."""

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.tasks import TaskRunner, run_here

HASH_ENTRY = struct.Struct("<QQ")  # key of an example, hash of its texts
_AT_A_TIME = 1 << 22  # examples whose hashes are compared at a time: 64 MB


@dataclasses.dataclass(frozen=True)
class _Stretches:
    """Entries of a file.

    Attributes:
        path: the file.
        starts: int64 [N], the index of the first entry of each stretch.
        sizes: int64 [N], the number of entries of each stretch.
    """

    path: Path
    starts: np.ndarray
    sizes: np.ndarray


def repeated(paths: Sequence[Path], runner: TaskRunner = run_here) -> np.ndarray:
    """Returns the keys of all examples but the first with the same hash, in order.

    No task reads more than a few parts of the hashes: if there are several parts, a
    first pass writes the entries of each file again, those of a part together.

    Args:
        paths: files with the key and the hash of each example, in their order.
        runner: runs the tasks, one for each file and one for each part of the hashes.

    Returns:
        uint64, ascending.
    """
    sizes = [path.stat().st_size // HASH_ENTRY.size for path in paths]
    num_parts = -(-sum(sizes) // _AT_A_TIME)
    if num_parts <= 1:
        whole = []
        for path, size in zip(paths, sizes, strict=True):
            whole.append(_Stretches(path, np.array([0]), np.array([size])))
        return np.sort(_compare(whole))
    tables = list(runner(_group, [(path, num_parts) for path in paths]))
    tasks = []
    for part in range(num_parts):
        stretches = []
        for path, table in zip(paths, tables, strict=True):
            starts = (np.cumsum(table) - table.ravel()).reshape(table.shape)
            stretches.append(
                _Stretches(_grouped(path), starts[:, part], table[:, part])
            )
        tasks.append(stretches)
    return np.sort(np.concatenate(list(runner(_compare, tasks))))


def _grouped(path: Path) -> Path:
    """Returns the file with the entries of another one, those of a part together."""
    return path.with_name(f"{path.name}-grouped")


def _group(task: tuple[Path, int]) -> np.ndarray:
    """Writes the entries of a file again, so many at a time, grouped by their part.

    Returns:
        int64 [N, parts], the number of entries of each part, each time.
    """
    path, num_parts = task
    sizes = [np.zeros((0, num_parts), np.int64)]
    with (
        path.open("rb") as file,
        atomic(_grouped(path)) as incomplete,
        incomplete.open("wb") as grouped,
    ):
        while content := file.read(_AT_A_TIME * HASH_ENTRY.size):
            entries = np.frombuffer(content, "<u8").reshape(-1, 2)
            parts = (entries[:, 1] % np.uint64(num_parts)).astype(np.int64)
            grouped.write(entries[np.argsort(parts, kind="stable")].tobytes())
            sizes.append(np.bincount(parts, minlength=num_parts)[np.newaxis])
    return np.concatenate(sizes)


def _compare(part: Sequence[_Stretches]) -> np.ndarray:
    """Returns the keys of the repeats among the entries of one part, in any order."""
    contents = []
    for stretches in part:
        with stretches.path.open("rb") as file:
            for start, size in zip(stretches.starts, stretches.sizes, strict=True):
                file.seek(int(start) * HASH_ENTRY.size)
                contents.append(file.read(int(size) * HASH_ENTRY.size))
    entries = np.frombuffer(b"".join(contents), "<u8").reshape(-1, 2)
    order = np.argsort(entries[:, 1], kind="stable")
    keys, hashes = entries[order].T
    return keys[1:][hashes[1:] == hashes[:-1]]
