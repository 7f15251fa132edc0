"""Finds and reads the records of a split.

A shard `{data_name}-{split}-00000-of-00100` is, as tensor2tensor writes it, a TFRecord
file of `tf.train.Example` with the int64 lists `inputs` and `targets`, each ending in
EOS, and, where word alignments were given, `links`. The index of a split,
`{data_name}-{split}.index.npz`, has the lengths of its records.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from t2t_keras.console import say
from t2t_keras.data.tfrecord import FRAME, damaged_record, read_payloads, unframe
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import atomic

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


def load_index(
    path: Path, shards: list[Path], sha256: str | None
) -> list[np.ndarray] | None:
    """Loads the lengths by shard; None if there are none, or not for these shards.

    Args:
        path: see `index_path`.
        shards: the TFRecord files.
        sha256: see `RecordIndex.open`.
    """
    if not path.exists():
        return None
    try:
        with np.load(path) as arrays:
            marks = np.array([_mark(shard) for shard in shards], np.int64)
            if not np.array_equal(arrays["marks"], marks):
                return None
            lengths = [arrays[str(shard)] for shard in range(len(shards))]
        is_whole = all(map(_fills, lengths, marks[:, 0]))
    except Exception:  # NumPy raises a dozen kinds of errors for a damaged file
        is_whole = False
    if not is_whole or sha256 not in (None, index_sha256(lengths)):
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


def part_starts(sizes: np.ndarray) -> np.ndarray:
    """Returns where parts of these sizes start, one after the other, from 0: [N].

    Args:
        sizes: int [N].
    """
    return np.cumsum(sizes) - sizes


def shard_name(data_name: str, split: str, shard: int, num_shards: int) -> str:
    """Returns a shard's file name, as tensor2tensor names it."""
    return f"{data_name}-{split}-{shard:05d}-of-{num_shards:05d}"


def index_path(data_dir: Path, data_name: str, split: str) -> Path:
    """Returns the path of the index of a split."""
    return Path(data_dir) / f"{data_name}-{split}.index.npz"


def unfinished_dir(data_dir: Path, data_name: str) -> Path:
    """Returns the directory in which datagen works until the data are complete."""
    return Path(data_dir) / f"{data_name}.incomplete"


def num_train_shards(num_examples: int) -> int:
    """Returns the number of shards for a number of training examples.

    There is one for every 10,000 examples up to tensor2tensor's 100. Beyond 50 million
    examples there are more, so that at most half a million are sorted in memory.
    """
    return max(min(-(-num_examples // 10_000), 100), -(-num_examples // 500_000))


def find_shards(data_dir: Path, data_name: str, split: str) -> list[Path]:
    """Returns the shards of a split, in order.

    Raises:
        UserError: there are none, some are missing, or there are two sets of them.
    """
    data_dir = Path(data_dir)
    manifest = data_dir / f"{data_name}.manifest.json"
    if unfinished_dir(data_dir, data_name).exists() and not manifest.exists():
        raise UserError(
            f"the data of '{data_name}' in {data_dir} is unfinished; run the same "
            "`t2t datagen` again, and it continues where it stopped"
        )
    pattern = re.compile(rf"{re.escape(data_name)}-{split}-(\d{{5}})-of-(\d{{5}})")
    names = os.listdir(data_dir) if data_dir.is_dir() else []
    matches = sorted(filter(None, map(pattern.fullmatch, names)), key=lambda m: m[0])
    if not matches:
        raise UserError(
            f"there is no {split} data of '{data_name}' in {data_dir}; "
            "`t2t datagen` makes it, and adds it to a directory that has other splits"
        )
    totals = {int(match[2]) for match in matches}
    if len(totals) > 1:
        raise UserError(
            f"{data_dir} has the {split} data of '{data_name}' more than once, in "
            f"{' and in '.join(map(str, sorted(totals)))} shards; remove one set"
        )
    if [int(match[1]) for match in matches] != list(range(*totals)):
        raise UserError(
            f"{data_dir} has only {len(matches)} of the {max(totals)} {split} shards "
            f"of '{data_name}'; copy the rest, or generate the data again"
        )
    return [data_dir / match[0] for match in matches]


@dataclasses.dataclass(frozen=True, eq=False)
class RecordIndex:
    """The location and the lengths of each of the N records of a split.

    Attributes:
        files: the shards.
        file: [N], index of the shard that holds the record.
        offset: [N], byte of the shard at which the record begins.
        size: [N], bytes of the record's payload.
        source_length: [N], tokens of the source, EOS included.
        target_length: [N], tokens of the target, EOS included.
        corpus: [N], index of the record's corpus in a mixture; None: there is one.
        swapped: whether the source is the record's `targets` and the target its
            `inputs`: a view of the same data in the other direction.
        damage: the errors that `read` has raised, because tf.data replaces them by
            other errors.
    """

    files: list[Path]
    file: np.ndarray
    offset: np.ndarray
    size: np.ndarray
    source_length: np.ndarray
    target_length: np.ndarray
    corpus: np.ndarray | None = None
    swapped: bool = False
    damage: list[UserError] = dataclasses.field(default_factory=list, repr=False)

    @classmethod
    def open(
        cls,
        data_dir: Path,
        data_name: str,
        split: str,
        swap: bool = False,
        sha256: str | None = None,
    ) -> Self:
        """Loads the index of a split, or builds it if there is none for these shards.

        A directory that tensor2tensor wrote has no index. Then the shards are read
        once, their checksums are verified, and the index is saved if the directory can
        be written.

        Args:
            data_dir: the data directory.
            data_name: `Problem.data_name`.
            split: "train", "dev" or "test".
            swap: whether source and target are swapped, see `Problem.reverse`.
            sha256: the `index_sha256` in the manifest; None: it is unknown.

        Raises:
            UserError: the split's data is absent, incomplete or damaged, or has another
                checksum.
        """
        shards = find_shards(data_dir, data_name, split)
        path = index_path(data_dir, data_name, split)
        lengths = load_index(path, shards, sha256)
        if lengths is None:
            lengths = [scan_shard(shard) for shard in shards]
            if sha256 not in (None, index_sha256(lengths)):
                raise UserError(
                    f"the {split} data of '{data_name}' in {data_dir} are not those "
                    f"that {path.name} was written for, and it cannot be built from "
                    "them; copy the directory again, or generate the data in another "
                    "--data_dir"
                )
            # If the directory is read-only, the index serves this process only.
            with contextlib.suppress(OSError):
                save_index(path, shards, lengths)
        size, *sides = np.concatenate(lengths).T.copy()
        corpus = sides.pop() if len(sides) == 3 else None
        source_length, target_length = sides[::-1] if swap else sides
        offsets = []
        for table in lengths:  # a shard is a sequence of frames, without gaps
            frames = table[:, 0].astype(np.int64) + FRAME
            offsets.append(part_starts(frames))
        counts = [len(table) for table in lengths]
        return cls(
            files=list(shards),
            file=np.repeat(np.arange(len(shards), dtype=np.int32), counts),
            offset=np.concatenate(offsets),
            size=size,
            source_length=source_length,
            target_length=target_length,
            corpus=corpus,
            swapped=swap,
        )

    def repeated(self, counts: np.ndarray) -> Self:
        """Returns an index in which each record occurs several times, or never.

        Args:
            counts: int [N], how often each record occurs.
        """
        arrays: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                arrays[name] = value.repeat(counts)
        return dataclasses.replace(self, **arrays)

    def __len__(self) -> int:
        """The number of records."""
        return len(self.size)

    def sha256(self) -> str:
        """Returns the `index_sha256` of an index without corpora."""
        sides = (self.source_length, self.target_length)
        table = np.stack([self.size, *sides[:: -1 if self.swapped else 1]], axis=1)
        stops = np.cumsum(np.bincount(self.file, minlength=len(self.files)))
        return index_sha256(np.split(table, stops[:-1]))

    @property
    def features(self) -> tuple[str, str]:
        """The names of source and target in a record."""
        return ("targets", "inputs") if self.swapped else ("inputs", "targets")

    def read(self, indices: Sequence[int] | np.ndarray) -> list[bytes]:
        """Returns the payloads of some records; several threads may call it at once.

        Raises:
            UserError: a record is damaged: one of its two checksums is wrong.
        """
        indices = np.asarray(indices, np.int64)
        files = self.file[indices].tolist()
        offsets = self.offset[indices].tolist()
        sizes = self.size[indices].tolist()
        payloads = []
        for file, offset, size in zip(files, offsets, sizes, strict=True):
            # `pread` does not move the file position, which threads share.
            record = os.pread(self._open_files[file].fileno(), size + FRAME, offset)
            payload = unframe(record)
            if payload is None or len(payload) != size:
                is_before = (self.file == file) & (self.offset < offset)
                # A record may occur several times.
                record_number = len(np.unique(self.offset[is_before])) + 1
                error = damaged_record(self.files[file], record_number, offset)
                self.damage.append(error)
                raise error
            payloads.append(payload)
        return payloads

    @functools.cached_property
    def _open_files(self) -> list[BinaryIO]:
        return [path.open("rb", buffering=0) for path in self.files]
