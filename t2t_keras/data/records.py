"""TFRecords as tensor2tensor writes them, and the index that finds each record.

A shard `{data_name}-{split}-00000-of-00100` is a TFRecord file of `tf.train.Example`
with the int64 lists `inputs` and `targets`, each ending in EOS. Beside the shards of a
split stands `{data_name}-{split}.index.npz`: the lengths of every record.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from t2t_keras.data.files import atomic
from t2t_keras.data.progress import say
from t2t_keras.data.tfrecord import FRAME, payload_of, read_record
from t2t_keras.errors import UserError

_EDGE = 4096  # bytes at both ends of a shard that tell whether it is still the same


def shard_name(data_name: str, split: str, shard: int, num_shards: int) -> str:
    """Returns a shard's file name, as tensor2tensor names it."""
    return f"{data_name}-{split}-{shard:05d}-of-{num_shards:05d}"


def num_train_shards(num_pairs: int) -> int:
    """Returns how many shards hold so many training pairs.

    One for every 10,000 pairs up to tensor2tensor's 100, and beyond 50 million so many
    that none has to sort more than half a million in memory.
    """
    return max(min(-(-num_pairs // 10_000), 100), -(-num_pairs // 500_000))


def write_frames(path: Path, records: Iterable[bytes]) -> None:
    """Writes a TFRecord file of records that `tfrecord.frame` made, atomically."""
    with atomic(path) as incomplete, incomplete.open("wb", buffering=1 << 20) as file:
        file.writelines(records)


def find_shards(data_dir: Path, data_name: str, split: str) -> list[Path]:
    """Returns the shards of a split, in their order.

    Raises:
        UserError: there are none, or not all, or those of two sets.
    """
    data_dir = Path(data_dir)
    if unfinished_dir(data_dir, data_name).exists() and not any(
        data_dir.glob(f"{data_name}.manifest.json")
    ):
        raise UserError(
            f"the data of '{data_name}' in {data_dir} is unfinished; run the same "
            "`t2t datagen` again, and it goes on where it stopped"
        )
    pattern = re.compile(rf"{re.escape(data_name)}-{split}-(\d{{5}})-of-(\d{{5}})")
    names = os.listdir(data_dir) if data_dir.is_dir() else []
    found = sorted(filter(None, map(pattern.fullmatch, names)), key=lambda m: m[0])
    if not found:
        raise UserError(
            f"there is no {split} data of '{data_name}' in {data_dir}; "
            "`t2t datagen` makes it, and adds it to a directory that has other splits"
        )
    totals = {int(match[2]) for match in found}
    if len(totals) > 1:
        raise UserError(
            f"{data_dir} has the {split} data of '{data_name}' more than once, in "
            f"{' and in '.join(map(str, sorted(totals)))} shards; remove one set"
        )
    if [int(match[1]) for match in found] != list(range(*totals)):
        raise UserError(
            f"{data_dir} has only {len(found)} of the {max(totals)} {split} shards of "
            f"'{data_name}'; copy the rest, or generate the data anew"
        )
    return [data_dir / match[0] for match in found]


def unfinished_dir(data_dir: Path, data_name: str) -> Path:
    """Returns the directory in which datagen works until everything is there."""
    return Path(data_dir) / f"{data_name}.incomplete"


def index_path(data_dir: Path, data_name: str, split: str) -> Path:
    """Returns where the index of a split stands."""
    return Path(data_dir) / f"{data_name}-{split}.index.npz"


def save_index(
    path: Path, shards: Sequence[Path], lengths: Sequence[np.ndarray]
) -> None:
    """Writes an index, atomically.

    Args:
        path: the file.
        shards: the TFRecord files.
        lengths: for each shard int32 [N, 3]: bytes, source and target tokens of every
            record.
    """
    marks = np.array([_mark(shard) for shard in shards], np.int64)
    by_shard = {str(shard): table for shard, table in enumerate(lengths)}
    with atomic(path) as incomplete, incomplete.open("wb") as file:
        np.savez(file, marks=marks, **by_shard)


def _mark(shard: Path) -> tuple[int, int]:
    """Returns the size of a file and a checksum of its two ends."""
    size = shard.stat().st_size
    with shard.open("rb") as file:
        ends = file.read(_EDGE)
        file.seek(max(0, size - _EDGE))
        return size, zlib.crc32(ends + file.read(_EDGE))


@dataclasses.dataclass(frozen=True, eq=False)
class RecordIndex:
    """Where each record of a split lies, and how long it is. N records.

    Attributes:
        files: the shards.
        file: [N] which of them holds the record.
        offset: [N] where in it the record begins.
        size: [N] bytes of the record's payload.
        source_length: [N] tokens of `inputs`, EOS included.
        target_length: [N] tokens of `targets`, EOS included.
        damage: the errors that `read` has raised; tf.data, which calls it, replaces
            them by its own.
    """

    files: list[Path]
    file: np.ndarray
    offset: np.ndarray
    size: np.ndarray
    source_length: np.ndarray
    target_length: np.ndarray
    damage: list[UserError] = dataclasses.field(default_factory=list, repr=False)

    @classmethod
    def open(cls, data_dir: Path, data_name: str, split: str) -> Self:
        """Loads the index of a split; builds it where there is none for these shards.

        That is the case for a directory that tensor2tensor wrote. The shards are read
        once, their checksums are verified, and the index is kept for the next time if
        the directory can be written to.

        Raises:
            UserError: the split's data is absent, incomplete or damaged.
        """
        shards = find_shards(data_dir, data_name, split)
        path = index_path(data_dir, data_name, split)
        lengths = _load(path, shards)
        if lengths is None:
            lengths = [_scan(shard) for shard in shards]
            # In a directory that is read-only it serves this process only.
            with contextlib.suppress(OSError):
                save_index(path, shards, lengths)
        return cls._from_lengths(shards, lengths)

    @classmethod
    def _from_lengths(cls, shards: list[Path], lengths: list[np.ndarray]) -> Self:
        """Computes the places: in a shard, records lie one behind the other."""
        size, source_length, target_length = np.concatenate(lengths).T.copy()
        offsets = []
        for table in lengths:
            frames = table[:, 0].astype(np.int64) + FRAME
            offsets.append(np.cumsum(frames) - frames)
        counts = [len(table) for table in lengths]
        return cls(
            files=list(shards),
            file=np.repeat(np.arange(len(shards), dtype=np.int32), counts),
            offset=np.concatenate(offsets),
            size=size,
            source_length=source_length,
            target_length=target_length,
        )

    def __len__(self) -> int:
        """The number of records."""
        return len(self.size)

    def read(self, indices: Sequence[int] | np.ndarray) -> list[bytes]:
        """Returns the payloads of some records; safe to call from several threads.

        Raises:
            UserError: a record is damaged: one of its two checksums is wrong.
        """
        indices = np.asarray(indices, np.int64)
        places = zip(
            indices.tolist(),
            self.file[indices].tolist(),
            self.offset[indices].tolist(),
            self.size[indices].tolist(),
            strict=True,
        )
        return [self._read(*place) for place in places]

    def _read(self, number: int, file: int, offset: int, size: int) -> bytes:
        """Reads a record without moving a position that other threads rely on."""
        record = os.pread(self._open_files[file].fileno(), size + FRAME, offset)
        payload = payload_of(record)
        if payload is None or len(payload) != size:
            first = np.searchsorted(self.file, file)
            error = _damaged(self.files[file], number - first + 1, offset)
            self.damage.append(error)
            raise error
        return payload

    @cached_property
    def _open_files(self) -> list[BinaryIO]:
        return [path.open("rb", buffering=0) for path in self.files]


def _load(path: Path, shards: list[Path]) -> list[np.ndarray] | None:
    """Loads the lengths by shard unless there are none, or they are of other shards."""
    if not path.exists():
        return None
    try:
        with np.load(path) as arrays:
            marks = np.array([_mark(shard) for shard in shards], np.int64)
            if not np.array_equal(arrays["marks"], marks):
                return None
            return [arrays[str(shard)] for shard in range(len(shards))]
    except (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        say(f"{path} is damaged; building it anew from the shards")
        return None


def _scan(shard: Path) -> np.ndarray:
    """Returns the lengths, int32 [N, 3], of the records of a shard."""
    import tensorflow as tf

    features = {name: tf.io.RaggedFeature(tf.int64) for name in ("inputs", "targets")}
    parts = [np.empty([0, 3], np.int32)]
    payloads = _payloads(shard)
    while batch := list(itertools.islice(payloads, 4096)):
        try:
            examples = tf.io.parse_example(batch, features)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(
                f"{shard}: a record is not a tf.train.Example of integers; this is not "
                "data of a sequence-to-sequence problem"
            ) from error
        columns = [
            np.array([len(payload) for payload in batch]),
            *(examples[name].row_lengths() for name in ("inputs", "targets")),
        ]
        parts.append(np.stack(columns, axis=1).astype(np.int32))
    lengths = np.concatenate(parts)
    if len(lengths) and not lengths.min():  # an absent feature parses as an empty one
        raise UserError(
            f"{shard}: a record lacks `inputs` or `targets`; this is not data of a "
            "sequence-to-sequence problem"
        )
    return lengths


def _payloads(shard: Path) -> Iterator[bytes]:
    """Yields the payloads of a shard; verifies their checksums."""
    with shard.open("rb", buffering=1 << 20) as file:
        offset = 0
        for number in itertools.count(1):
            record = read_record(file)
            if not record:
                return
            payload = payload_of(record)
            if payload is None:
                raise _damaged(shard, number, offset)
            yield payload
            offset += len(record)


def _damaged(shard: Path, number: int, offset: int) -> UserError:
    """The error for a record of a shard, numbered from 1, that begins at a byte."""
    return UserError(
        f"{shard} is damaged: the checksum of record {number:,} (at byte {offset:,}) "
        "is wrong; copy the file again, or remove the data and run `t2t datagen` again"
    )
