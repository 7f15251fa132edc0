"""Finds and reads the records of a split."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from t2t_keras.data.console import say
from t2t_keras.data.index_files import index_sha256, load_index, save_index, scan_shard
from t2t_keras.data.part_starts import part_starts
from t2t_keras.data.split_files import find_shards, index_path
from t2t_keras.data.tfrecord import FRAME, damaged_record, unframe
from t2t_keras.errors import UserError


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
        lengths = load_index(path, shards)
        if lengths and sha256 not in (None, index_sha256(lengths)):
            say(f"{path} is damaged; building it again from the shards")
            lengths = None
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
        return dataclasses.replace(
            self,
            file=self.file.repeat(counts),
            offset=self.offset.repeat(counts),
            size=self.size.repeat(counts),
            source_length=self.source_length.repeat(counts),
            target_length=self.target_length.repeat(counts),
            corpus=None if self.corpus is None else self.corpus.repeat(counts),
        )

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
