"""Spill files: the records of a shard before they are sorted."""

import contextlib
import dataclasses
import os
import resource
import struct
import zlib
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.tfrecord import FRAME
from t2t_keras.errors import UserError

# Precedes each record of a spill file: key, record bytes, source and target tokens,
# index of the corpus.
SPILL_HEADER = struct.Struct("<QIIII")
_BUFFER = 1 << 16  # bytes that every open spill file may hold in memory
_OTHER_FILES = 200  # that a process may have open


class SpillFiles(contextlib.ExitStack):
    """Spill files that are open for appending, one for each shard.

    Args:
        paths: the files.
        sizes: number of bytes of each file to keep, when an interrupted encoding
            continues; the rest is cut off. None starts with empty files.
        checksums: the CRC-32 of the bytes that are kept, of each file; None: unknown,
            as an earlier version leaves it.

    Attributes:
        checksums: the CRC-32 of each file; None: unknown.

    Raises:
        UserError: a file is shorter than its size.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        sizes: Sequence[int] | None = None,
        checksums: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.checksums = [0] * len(paths) if sizes is None else None
        if checksums is not None:
            self.checksums = list(checksums)
        _allow_open_files(len(paths))
        mode = "wb" if sizes is None else "r+b"
        self._files = []
        for path in paths:
            file = self.enter_context(path.open(mode, buffering=_BUFFER))
            self._files.append(file)
        if sizes is not None and len(sizes) != len(self._files):
            raise UserError(
                f"{paths[0].parent} is damaged: it has the sizes of {len(sizes)} files "
                f"of {len(self._files)}; remove it and run the same command again"
            )
        for file, size in zip(self._files, sizes or [], strict=sizes is not None):
            if file.seek(0, os.SEEK_END) < size:
                raise UserError(
                    f"{file.name} has been cut off, perhaps by a power failure; remove "
                    f"{Path(file.name).parent} and run the same command again"
                )
            file.truncate(size)
            file.seek(size)

    def append(self, contents: Mapping[int, bytes | bytearray]) -> None:
        """Appends to some of the files, which are numbered from 0."""
        for index, content in contents.items():
            self._files[index].write(content)
            if self.checksums is not None:
                checksum = zlib.crc32(content, self.checksums[index])
                self.checksums[index] = checksum

    def flush(self) -> list[int]:
        """Writes the buffers; returns the sizes of the files."""
        for file in self._files:
            file.flush()
        return [file.tell() for file in self._files]


def _allow_open_files(count: int) -> None:
    """Raises this process's limit of open files, by default 1,024, if it is too low."""
    needed = count + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_low = soft != resource.RLIM_INFINITY and soft < needed
    if is_low and (hard == resource.RLIM_INFINITY or needed <= hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@dataclasses.dataclass(frozen=True)
class Spill:
    """A spill file to read, and what it must have.

    Attributes:
        path: the file.
        size: its bytes.
        checksum: its CRC-32; None: unknown.
    """

    path: Path
    size: int
    checksum: int | None = None

    def read(self) -> bytes:
        """Returns the content; raises `UserError` if it is not what was written."""
        content = self.path.read_bytes() if self.path.exists() else b""
        is_whole = len(content) == self.size
        if is_whole and self.checksum in (None, zlib.crc32(content)):
            return content
        raise damaged_spill(self.path)


def damaged_spill(path: Path) -> UserError:
    """Returns the error for a spill file that is not what was written."""
    return UserError(
        f"{path} is damaged, perhaps by a lost machine or a full disk; remove "
        f"{path.parent} and run the same command again"
    )


def read_sorted(
    spills: Sequence[Spill], without: np.ndarray
) -> tuple[list[bytes], np.ndarray]:
    """Returns the records of a shard in the order of their keys.

    Args:
        spills: the spill files of the shard.
        without: uint64, ascending: keys of records that are left out.

    Returns:
        The framed records, and an int32 array [N, 4] with their payload bytes, source
        tokens, target tokens, and index of the corpus.

    Raises:
        UserError: a file is missing or damaged.
    """
    content = b"".join(spill.read() for spill in spills)
    keys = array("Q")
    starts = array("Q")
    lengths = array("i")
    position = 0
    while position < len(content):
        key, *size_and_lengths = SPILL_HEADER.unpack_from(content, position)
        position += SPILL_HEADER.size
        keys.append(key)
        starts.append(position)
        lengths.extend(size_and_lengths)
        position += size_and_lengths[0]
    order = np.argsort(np.asarray(keys), kind="stable")
    order = order[~np.isin(np.asarray(keys)[order], without)]
    table = np.asarray(lengths, np.int32).reshape(-1, 4)[order]
    records = []
    sizes = table[:, 0].tolist()
    for start, size in zip(np.asarray(starts)[order].tolist(), sizes, strict=True):
        records.append(content[start : start + size])
    table[:, 0] -= FRAME
    return records, table
