"""Records on the disk: their format, the index that finds them, the raw texts.

A shard `{data_name}-{split}-00000-of-00100` is, as tensor2tensor writes it, a TFRecord
file of `tf.train.Example` with the int64 lists `inputs` and `targets`, each ending in
EOS, and, where word alignments were given, `links`. Beside the shards of a split are

- `{data_name}-{split}.index.npz`: the size and the lengths of every record;
- `{data_name}-{split}.sources` and `.targets`, for dev and test: the raw texts, one a
  line, in the order of the records. Metrics compare with them, because a vocabulary
  that normalises does not give the text back when its ids are decoded.

Examples are serialized and framed here without TensorFlow, whose import takes three
seconds and 550 MB in every worker process of datagen.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import google_crc32c
import numpy as np

from t2t_keras.data.files import atomic, say
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair

_BEFORE_PAYLOAD, _AFTER_PAYLOAD = 12, 4  # bytes
FRAME = _BEFORE_PAYLOAD + _AFTER_PAYLOAD  # bytes of a record that are not payload
_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")

# What NumPy raises for a damaged index.
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, EOFError, OSError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError, OverflowError),
    *(struct.error, SyntaxError, tokenize.TokenError),
)

_EDGE = 4096  # bytes at both ends of a shard, whose checksum tells if it has changed


# A record.


def field(number: int, content: bytes) -> bytes:
    """Returns a field that holds a message, a string, or packed numbers."""
    return b"".join((varint(number << 3 | 2), varint(len(content)), content))


@functools.lru_cache(1 << 16)
def varint(number: int) -> bytes:
    """Returns an integer in base 128, least significant digit first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def example(
    source: Sequence[int], target: Sequence[int], links: Sequence[int] = ()
) -> bytes:
    """Returns a serialized `tf.train.Example` with int64 lists `inputs` and `targets`.

    The bytes are those of TensorFlow's deterministic serialization.

    Args:
        source: ids of the source.
        target: ids of the target.
        links: the positions of tokens that are linked, for each link the target token's
            and the source token's; the list `links`, unless empty.
    """
    features = b""
    for name, ids in ((b"inputs", source), (b"links", links), (b"targets", target)):
        if ids or name != b"links":
            int64_list = field(3, field(1, b"".join(map(varint, ids))))
            features += field(1, field(1, name) + field(2, int64_list))
    return field(1, features)


def frame(payload: bytes) -> bytes:
    """Returns a payload as it stands in a TFRecord file.

    That is: its length (8 bytes), the masked CRC-32C of the length (4), the payload,
    the masked CRC-32C of the payload (4), all little-endian.
    """
    return _header(len(payload)) + payload + _checksum(payload)


def _unframed(record: bytes) -> bytes | None:
    """Returns the payload of a framed record, or None if a checksum is wrong."""
    payload = record[_BEFORE_PAYLOAD:-_AFTER_PAYLOAD]
    header, checksum = record[:_BEFORE_PAYLOAD], record[-_AFTER_PAYLOAD:]
    is_whole = header == _header(len(payload)) and checksum == _checksum(payload)
    return payload if is_whole else None


@functools.lru_cache(maxsize=1 << 16)  # records have few different lengths
def _header(length: int) -> bytes:
    """Returns what precedes a payload of a length."""
    packed = _LENGTH.pack(length)
    return packed + _checksum(packed)


def _checksum(content: bytes) -> bytes:
    """Returns the masked CRC-32C: rotated by 15 bits, plus a constant."""
    crc = google_crc32c.value(content)
    rotated = crc >> 15 | crc << 17
    return _CRC.pack(rotated + 0xA282EAD8 & 0xFFFFFFFF)


# The files of a split.


def shard_name(data_name: str, split: str, shard: int, num_shards: int) -> str:
    """Returns a shard's file name, as tensor2tensor names it."""
    return f"{data_name}-{split}-{shard:05d}-of-{num_shards:05d}"


def index_path(data_dir: Path, data_name: str, split: str) -> Path:
    """Returns the path of the index of a split."""
    return Path(data_dir) / f"{data_name}-{split}.index.npz"


def unfinished_dir(data_dir: Path, data_name: str) -> Path:
    """Returns the directory in which datagen works until everything is there."""
    return Path(data_dir) / f"{data_name}.incomplete"


def num_train_shards(num_examples: int) -> int:
    """Returns the number of shards for a number of training examples.

    There is one for every 10,000 examples up to tensor2tensor's 100. Beyond 50 million
    examples there are more, so that none has to sort over half a million in memory.
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
            f"'{data_name}'; copy the rest, or generate the data again"
        )
    return [data_dir / match[0] for match in found]


# The index of a split.


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
        ends = file.read(_EDGE)
        file.seek(max(0, size - _EDGE))
        return size, zlib.crc32(ends + file.read(_EDGE))


@dataclasses.dataclass(frozen=True, eq=False)
class RecordIndex:
    """The place and the lengths of each of the N records of a split.

    Attributes:
        files: the shards.
        file: [N], number of the shard that holds the record.
        offset: [N], byte of the shard at which the record begins.
        size: [N], bytes of the record's payload.
        source_length: [N], tokens of the source, EOS included.
        target_length: [N], tokens of the target, EOS included.
        corpus: [N], number of the record's corpus in a mixture; None: there is one.
        swapped: whether the source is the record's `targets` and the target its
            `inputs`: a view of the same data in the other direction.
        damage: the errors that `read` has raised; tf.data, which calls it, replaces
            them by its own errors.
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

        A directory that tensor2tensor wrote has none. The shards are then read once,
        their checksums are verified, and the index is saved for the next time if the
        directory can be written.

        Args:
            data_dir: the data directory.
            data_name: `Problem.data_name`.
            split: "train", "dev" or "test".
            swap: whether source and target are swapped, see `Problem.reverse`.
            sha256: what `index_sha256` returns for it, from the manifest; None: it is
                not known.

        Raises:
            UserError: the split's data is absent, incomplete or damaged, or has another
                checksum.
        """
        shards = find_shards(data_dir, data_name, split)
        path = index_path(data_dir, data_name, split)
        lengths = _load(path, shards)
        if lengths and sha256 not in (None, index_sha256(lengths)):
            say(f"{path} is damaged; building it again from the shards")
            lengths = None
        if lengths is None:
            lengths = [_scan(shard) for shard in shards]
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
            offsets.append(np.cumsum(frames) - frames)
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
        names = ("file", "offset", "size", "source_length", "target_length", "corpus")
        columns = {name: getattr(self, name) for name in names}
        return dataclasses.replace(
            self, **{n: c.repeat(counts) for n, c in columns.items() if c is not None}
        )

    def __len__(self) -> int:
        """The number of records."""
        return len(self.size)

    def sha256(self) -> str:
        """Returns the `index_sha256` of an index without corpora."""
        sides = (self.source_length, self.target_length)
        table = np.stack([self.size, *sides[:: -1 if self.swapped else 1]], axis=1)
        ends = np.cumsum(np.bincount(self.file, minlength=len(self.files)))
        return index_sha256(np.split(table, ends[:-1]))

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
        columns = (array[indices] for array in (self.file, self.offset, self.size))
        payloads = []
        for file, offset, size in zip(*(c.tolist() for c in columns), strict=True):
            # `pread` does not move the file position, which threads share.
            record = os.pread(self._open_files[file].fileno(), size + FRAME, offset)
            payload = _unframed(record)
            if payload is None or len(payload) != size:
                before = self.offset[(self.file == file) & (self.offset < offset)]
                number = len(np.unique(before)) + 1  # a record may occur several times
                error = _damaged(self.files[file], number, offset)
                self.damage.append(error)
                raise error
            payloads.append(payload)
        return payloads

    @functools.cached_property
    def _open_files(self) -> list[BinaryIO]:
        return [path.open("rb", buffering=0) for path in self.files]


def index_sha256(lengths: Sequence[np.ndarray]) -> str:
    """Returns the SHA-256 of the content of an index, see `save_index`."""
    content = hashlib.sha256()
    for table in lengths:
        content.update(repr(table.shape).encode())
        content.update(np.ascontiguousarray(table, "<i4").tobytes())
    return content.hexdigest()


def _load(path: Path, shards: list[Path]) -> list[np.ndarray] | None:
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

    The checksum in the archive does not tell: with one wrong bit in the shape of a
    table, fewer rows are read than it has, and what is not read is not verified.
    """
    if table.dtype != np.int32 or table.ndim != 2 or table.shape[1] not in (3, 4):
        return False
    return int(table[:, 0].sum(dtype=np.int64)) + FRAME * len(table) == size


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
    """Yields the payloads of a shard, and verifies their checksums."""
    with shard.open("rb", buffering=1 << 20) as file:
        offset = 0
        for number in itertools.count(1):
            record = file.read(_BEFORE_PAYLOAD)
            if not record:
                return
            length = int.from_bytes(record[: _LENGTH.size], "little")
            if record == _header(length):  # otherwise the length is not reliable
                record += file.read(length + _AFTER_PAYLOAD)
            payload = _unframed(record)
            if payload is None:
                raise _damaged(shard, number, offset)
            yield payload
            offset += len(record)


def _damaged(shard: Path, number: int, offset: int) -> UserError:
    """Returns the error for a record of a shard, with its number (from 1) and place."""
    return UserError(
        f"{shard} is damaged: the checksum of record {number:,} (at byte {offset:,}) "
        "is wrong; copy the file again, or remove the data and run `t2t datagen` again"
    )


# The raw texts of a split.


def write_texts(paths: Sequence[Path], pairs: Iterable[Pair]) -> int:
    r"""Writes the texts of pairs, one a line, atomically; returns their number.

    A "\n" within a text is written as a space.

    Args:
        paths: the files of the sources and of the targets.
        pairs: the pairs of the split, in the order of the records.
    """
    count = 0
    with contextlib.ExitStack() as stack:
        # A user's source may yield lone surrogates.
        incomplete = [stack.enter_context(atomic(path)) for path in paths]
        files = [
            stack.enter_context(path.open("w", -1, "utf-8", "surrogatepass", "\n"))
            for path in incomplete
        ]
        for pair in pairs:
            for file, text in zip(files, pair, strict=True):
                file.write(text.replace("\n", " ") + "\n")
            count += 1
    return count


def read_texts(
    data_dir: Path,
    data_name: str,
    split: str,
    index: RecordIndex,
    checksums: Sequence[str] | None = None,
) -> tuple[list[str], list[str]] | None:
    """Returns the raw sources and targets of a split, in the order of the records.

    Args:
        data_dir: the data directory.
        data_name: `Problem.data_name`.
        split: "train", "dev" or "test".
        index: the index of the split, whose sides may be swapped.
        checksums: the SHA-256 of both files, from the manifest; None: unknown.

    Returns:
        None if the directory has none: it is of tensor2tensor or of an earlier
        version, or the split is train.

    Raises:
        UserError: a file is missing or damaged.
    """
    stem = f"{data_name}-{split}"
    paths = [Path(data_dir) / f"{stem}.{name}" for name in ("sources", "targets")]
    if not (checksums or any(path.exists() for path in paths)):
        return None
    texts = []
    for path, checksum in zip(paths, checksums or (None, None), strict=True):
        lines = list[str]()
        try:
            content = path.read_bytes()
            lines = content.decode("utf-8", "surrogatepass").split("\n")[:-1]
            wrong = f"it has {len(lines):,} lines for {len(index):,} records"
            if len(lines) == len(index):
                is_whole = checksum in (None, hashlib.sha256(content).hexdigest())
                wrong = "" if is_whole else "it has been changed"
        except UnicodeDecodeError:
            wrong = "it is not valid UTF-8"
        except OSError as error:
            wrong = str(error.strerror)
        if wrong:
            raise UserError(
                f"cannot use {path}: {wrong}; copy the file again, or generate the "
                "data in another --data_dir"
            )
        texts.append(lines)
    source, target = texts[::-1] if index.swapped else texts
    return source, target
