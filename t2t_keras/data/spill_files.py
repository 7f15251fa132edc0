"""Spill files: the records of a shard before they are sorted."""

import contextlib
import os
import resource
import struct
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

    Raises:
        UserError: a file is shorter than its size.
    """

    def __init__(
        self, paths: Sequence[Path], sizes: Sequence[int] | None = None
    ) -> None:
        super().__init__()
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


def read_sorted(
    paths: Sequence[Path], without: np.ndarray
) -> tuple[list[bytes], np.ndarray]:
    """Returns the records of a shard in the order of their keys.

    Args:
        paths: the spill files of the shard.
        without: uint64, ascending: keys of records that are left out.

    Returns:
        The framed records, and an int32 array [N, 4] with their payload bytes, source
        tokens, target tokens, and index of the corpus.
    """
    content = b"".join(path.read_bytes() for path in paths)
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
