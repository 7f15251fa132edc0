"""The index of a split, `{data_name}-{split}.index.npz`: the lengths of its records."""

import hashlib
import itertools
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.console import say
from t2t_keras.data.tfrecord import FRAME, read_payloads
from t2t_keras.errors import UserError

# What NumPy raises for a damaged index.
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, EOFError, OSError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError, OverflowError),
    *(struct.error, SyntaxError, tokenize.TokenError),
)
_EDGE = 4096  # bytes at both ends of a shard, whose checksum tells if it has changed


def save_index(
    path: Path, shards: Sequence[Path], lengths: Sequence[np.ndarray]
) -> None:
    """Writes an index, atomically.

    Args:
        path: see `index_path`.
        shards: the TFRecord files.
        lengths: for each shard, int32 [N, 3 or 4]: payload bytes, source tokens and
            target tokens of every record, and in a mixture the number of its corpus.
    """
    marks = np.array([_mark(shard) for shard in shards], np.int64)
    by_shard: dict[str, Any] = {str(i): table for i, table in enumerate(lengths)}
    with atomic(path) as incomplete, incomplete.open("wb") as file:
        np.savez(file, marks=marks, **by_shard)


def _mark(shard: Path) -> tuple[int, int]:
    """Returns the size of a file and a checksum of its two ends."""
    size = shard.stat().st_size
    with shard.open("rb") as file:
        content = file.read(_EDGE)
        file.seek(max(0, size - _EDGE))
        return size, zlib.crc32(content + file.read(_EDGE))


def index_sha256(lengths: Sequence[np.ndarray]) -> str:
    """Returns the SHA-256 of the content of an index, see `save_index`."""
    content = hashlib.sha256()
    for table in lengths:
        content.update(repr(table.shape).encode())
        content.update(np.ascontiguousarray(table, "<i4").tobytes())
    return content.hexdigest()


def load_index(path: Path, shards: list[Path]) -> list[np.ndarray] | None:
    """Loads the lengths by shard; None if there are none, or not for these shards."""
    if not path.exists():
        return None
    try:
        with np.load(path) as arrays:
            marks = np.array([_mark(shard) for shard in shards], np.int64)
            if not np.array_equal(arrays["marks"], marks):
                return None
            lengths = [arrays[str(shard)] for shard in range(len(shards))]
    except _UNREADABLE:
        lengths = []
    sizes = [shard.stat().st_size for shard in shards]
    if len(lengths) != len(shards) or not all(map(_fills, lengths, sizes)):
        say(f"{path} is damaged; building it again from the shards")
        return None
    return lengths


def _fills(table: np.ndarray, size: int) -> bool:
    """Returns whether the records of a table fill a shard of this size exactly.

    The archive's checksum covers only what is read. If a wrong bit makes the shape of a
    table smaller, the other rows are neither read nor verified.
    """
    if table.dtype != np.int32 or table.ndim != 2 or table.shape[1] not in (3, 4):
        return False
    return int(table[:, 0].sum(dtype=np.int64)) + FRAME * len(table) == size


def scan_shard(shard: Path) -> np.ndarray:
    """Returns the lengths, int32 [N, 3], of the records of a shard."""
    import tensorflow as tf

    features = {name: tf.io.RaggedFeature(tf.int64) for name in ("inputs", "targets")}
    parts = [np.empty([0, 3], np.int32)]
    payloads = read_payloads(shard)
    while batch := list(itertools.islice(payloads, 4096)):
        try:
            examples = tf.io.parse_example(batch, features)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(
                f"{shard}: a record is not a tf.train.Example of integers; this is not "
                "data of a sequence-to-sequence problem"
            ) from error
        columns = [
            np.array(list(map(len, batch))),
            examples["inputs"].row_lengths(),
            examples["targets"].row_lengths(),
        ]
        parts.append(np.stack(columns, axis=1).astype(np.int32))
    lengths = np.concatenate(parts)
    if len(lengths) and not lengths.min():  # an absent feature parses as an empty one
        raise UserError(
            f"{shard}: a record lacks `inputs` or `targets`; this is not data of a "
            "sequence-to-sequence problem"
        )
    return lengths
