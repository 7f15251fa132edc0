"""Finds pairs that occur more than once."""

import dataclasses
import itertools
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.spill_files import Spill, damaged_spill
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
        checksums: the CRC-32 of each stretch; None: unknown.
    """

    path: Path
    starts: np.ndarray
    sizes: np.ndarray
    checksums: Sequence[int | None]

    def read(self) -> Iterator[bytes]:
        """Yields each stretch; raises `UserError` if it is not what was written."""
        if not self.path.exists():
            raise damaged_spill(self.path)
        with self.path.open("rb") as file:
            stretches = zip(self.starts, self.sizes, self.checksums, strict=True)
            for start, size, checksum in stretches:
                file.seek(int(start) * HASH_ENTRY.size)
                content = file.read(int(size) * HASH_ENTRY.size)
                is_whole = len(content) == size * HASH_ENTRY.size
                if not is_whole or checksum not in (None, zlib.crc32(content)):
                    raise damaged_spill(self.path)
                yield content


def repeated(files: Sequence[Spill], runner: TaskRunner = run_here) -> np.ndarray:
    """Returns the keys of all examples but the first with the same hash, in order.

    No task reads more than a few parts of the hashes: if there are several parts, a
    first pass writes the entries of each file again, those of a part together.

    Args:
        files: files with the key and the hash of each example, in their order.
        runner: runs the tasks, one for each file and one for each part of the hashes.

    Returns:
        uint64, ascending.

    Raises:
        UserError: a file is missing or damaged.
    """
    sizes = [file.size // HASH_ENTRY.size for file in files]
    num_parts = -(-sum(sizes) // _AT_A_TIME)
    if num_parts <= 1:
        stretches = []
        for file, size in zip(files, sizes, strict=True):
            stretches.append(
                _Stretches(file.path, np.array([0]), np.array([size]), [file.checksum])
            )
        return np.sort(_compare(stretches))
    groups = list(runner(_group, [(file, num_parts) for file in files]))
    tasks = []
    for part in range(num_parts):
        stretches = []
        for file, (table, checksums) in zip(files, groups, strict=True):
            starts = (np.cumsum(table) - table.ravel()).reshape(table.shape)
            stretches.append(
                _Stretches(
                    _grouped(file.path),
                    starts[:, part],
                    table[:, part],
                    checksums[:, part].tolist(),
                )
            )
        tasks.append(stretches)
    return np.sort(np.concatenate(list(runner(_compare, tasks))))


def _grouped(path: Path) -> Path:
    """Returns the file to which `_group` writes the entries of a file."""
    return path.with_name(f"{path.name}-grouped")


def _group(task: tuple[Spill, int]) -> tuple[np.ndarray, np.ndarray]:
    """Writes N chunks of a file's entries to another one, each grouped by part.

    Returns:
        int64 [N, parts], the number of entries of each part in each chunk, and their
        CRC-32, uint32 [N, parts].

    Raises:
        UserError: the file is missing or damaged.
    """
    spill, num_parts = task
    if not spill.path.exists():
        raise damaged_spill(spill.path)
    sizes = [np.zeros((0, num_parts), np.int64)]
    checksums = [np.zeros((0, num_parts), np.uint32)]
    read = 0
    checksum = 0
    with (
        spill.path.open("rb") as file,
        atomic(_grouped(spill.path)) as incomplete,
        incomplete.open("wb") as grouped,
    ):
        while read < spill.size:
            content = file.read(min(_AT_A_TIME * HASH_ENTRY.size, spill.size - read))
            if not content or len(content) % HASH_ENTRY.size:
                raise damaged_spill(spill.path)
            read += len(content)
            checksum = zlib.crc32(content, checksum)
            entries = np.frombuffer(content, "<u8").reshape(-1, 2)
            parts = (entries[:, 1] % np.uint64(num_parts)).astype(np.int64)
            entries = entries[np.argsort(parts, kind="stable")]
            grouped.write(entries.tobytes())
            counts = np.bincount(parts, minlength=num_parts)
            groups = np.split(entries, np.cumsum(counts)[:-1])
            row = [zlib.crc32(group.tobytes()) for group in groups]
            sizes.append(counts[np.newaxis])
            checksums.append(np.array([row], np.uint32))
        if file.read(1) or spill.checksum not in (None, checksum):
            raise damaged_spill(spill.path)
    return np.concatenate(sizes), np.concatenate(checksums)


def _compare(part: Sequence[_Stretches]) -> np.ndarray:
    """Returns the keys of the repeats among the entries of one part, in any order."""
    contents = itertools.chain.from_iterable(stretches.read() for stretches in part)
    entries = np.frombuffer(b"".join(contents), "<u8").reshape(-1, 2)
    order = np.argsort(entries[:, 1], kind="stable")
    keys, hashes = entries[order].T
    return keys[1:][hashes[1:] == hashes[:-1]]
