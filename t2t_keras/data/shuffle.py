"""A global shuffle in bounded memory.

Every example has a key, a hash of the seed and of its number in the source. The whole
data set is ordered by that key: its remainder tells the shard, and within the shard the
examples are sorted by it. First all examples are appended to one spill file per shard,
as they come; then each shard is read, sorted and written on its own.
"""

import hashlib
import os
import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.tfrecord import FRAME
from t2t_keras.errors import UserError

_HEADER = struct.Struct("<QIII")  # key, size, source length, target length
_BUFFER = 1 << 16  # bytes of each spill file that wait in memory


def order_key(seed: int, number: int) -> int:
    """Returns a hash of 64 bits of a seed and an example's number."""
    number_bytes = struct.pack("<qq", seed, number)
    digest = hashlib.blake2b(number_bytes, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def spilled(key: int, record: bytes, source_length: int, target_length: int) -> bytes:
    """Returns a record, framed for its TFRecord file, as it stands in a spill file."""
    return _HEADER.pack(key, len(record), source_length, target_length) + record


class Spills:
    """One spill file for each shard, open for appending.

    Args:
        paths: the files, by shard.
        sizes: to go on with files of which so many bytes are good; the rest of each is
            cut off. None starts anew.

    Raises:
        UserError: a file is shorter than it must be.
    """

    def __init__(
        self, paths: Sequence[Path], sizes: Sequence[int] | None = None
    ) -> None:
        mode = "wb" if sizes is None else "r+b"
        self._files = [path.open(mode, buffering=_BUFFER) for path in paths]
        for file, size in zip(self._files, sizes or [], strict=sizes is not None):
            if file.seek(0, os.SEEK_END) < size:
                raise UserError(
                    f"{file.name} has been cut off, perhaps by a power failure; remove "
                    f"{Path(file.name).parent} and run the same command again"
                )
            file.truncate(size)
            file.seek(size)

    def __enter__(self) -> "Spills":
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.close()

    def append(self, records: Mapping[int, bytes]) -> None:
        """Appends records to the files of their shards."""
        for shard, content in records.items():
            self._files[shard].write(content)

    def flush(self) -> list[int]:
        """Hands everything to the operating system; returns the sizes of the files."""
        for file in self._files:
            file.flush()
        return [file.tell() for file in self._files]


def read_sorted(
    paths: Sequence[Path], without: np.ndarray
) -> tuple[list[bytes], np.ndarray]:
    """Returns the records of a shard in the order of their keys.

    Args:
        paths: its spill files.
        without: uint64, ascending: keys of records that are left out.

    Returns:
        The records, and an int32 array [N, 3] of payload size, source and target
        length.
    """
    content = b"".join(path.read_bytes() for path in paths)
    keys, starts, lengths = array("Q"), array("Q"), array("i")
    position = 0
    while position < len(content):
        key, *size_and_lengths = _HEADER.unpack_from(content, position)
        position += _HEADER.size
        keys.append(key)
        starts.append(position)
        lengths.extend(size_and_lengths)
        position += size_and_lengths[0]
    order = np.argsort(np.asarray(keys), kind="stable")
    order = order[~np.isin(np.asarray(keys)[order], without)]
    table = np.asarray(lengths, np.int32).reshape(-1, 3)[order]
    firsts = np.asarray(starts)[order].tolist()
    records = [
        content[first : first + size]
        for first, size in zip(firsts, table[:, 0].tolist(), strict=True)
    ]
    table[:, 0] -= FRAME
    return records, table
