"""Encodes pairs of texts into records.

Every example has a key, a hash of the seed and of its index in the source, and the
whole data set is ordered by the keys: the remainder of its key determines the shard of
an example, and a shard is sorted by key. This shuffles globally in bounded memory:
while pairs are encoded, each record is appended to a spill file of its shard, and
later one shard at a time is read and sorted (`write_shards.read_sorted`).
"""

import bisect
import contextlib
import dataclasses
import math
import os
import resource
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2t_keras.data.cleaning import (
    LENGTH_FILTERS,
    TEXT_FILTERS,
    active_filters,
    drop_reason,
)
from t2t_keras.data.tfrecord import example, frame
from t2t_keras.errors import UserError
from t2t_keras.files.json_files import hash_64
from t2t_keras.problem import SIDES, Cleaning, Pair
from t2t_keras.text.alignment import token_links
from t2t_keras.text.sentences import mark_sentence_ends
from t2t_keras.text.tokenizer import Tokenizer, load_tokenizer

HASH_ENTRY = struct.Struct("<QQ")  # key of an example, hash of its texts


# Precedes each record of a spill file: key, record bytes, source and target tokens,
# index of the corpus.
SPILL_HEADER = struct.Struct("<QIIII")
_BUFFER = 1 << 16  # bytes that every open spill file may hold in memory
_OTHER_FILES = 200  # that a process may have open


class SpillFiles(contextlib.ExitStack):
    """Files of a `SplitPart` that are open for appending.

    Args:
        paths: the files.
        sizes: number of bytes of each file to keep, when an interrupted encoding
            continues; the rest is cut off. Without sizes all files are empty at first.
        checksums: the CRC-32 of the bytes that are kept, of each file.

    Attributes:
        checksums: the CRC-32 of each file.

    Raises:
        UserError: a file is shorter than its size.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        sizes: Sequence[int] = (),
        checksums: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.checksums = list(checksums) or [0] * len(paths)
        _allow_open_files(len(paths))
        mode = "r+b" if sizes else "wb"
        self._files = []
        for path in paths:
            file = self.enter_context(path.open(mode, buffering=_BUFFER))
            self._files.append(file)
        for file, size in zip(self._files, sizes, strict=bool(sizes)):
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
            self.checksums[index] = zlib.crc32(content, self.checksums[index])

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
class EncodingConfig:
    """How the pairs of a split are encoded.

    Attributes:
        num_shards: number of shards over which the examples are spread.
        num_hash_files: number of files over which their hashes are spread.
        seed: seed of the global order; None keeps the order of the source.
        max_length: pairs with more tokens on a side (EOS included) are dropped, and
            so are pairs with an empty side; infinity keeps every pair.
        cleaning: further rules to drop pairs, which apply if max_length is given.
        corpora: the index of the first pair of each corpus.
        tags: the word before the sources of each corpus, which the cleaning ignores;
            empty if it has none.
    """

    num_shards: int
    num_hash_files: int = 1
    seed: int | None = None
    max_length: float = math.inf
    cleaning: Cleaning = Cleaning()  # noqa: RUF009, it is frozen
    corpora: tuple[int, ...] = (0,)
    tags: tuple[str, ...] = ("",)

    def corpus(self, index: int) -> int:
        """Returns the index of the corpus that a pair belongs to."""
        return bisect.bisect_right(self.corpora, index) - 1


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The examples of a chunk of pairs.

    Attributes:
        pairs: number of pairs in the chunk.
        contents: number of a file in `SplitPart.files` -> the bytes to append to it. No
            file gets hashes if duplicates are kept.
        dropped: number of dropped examples by reason, see `reasons`.
            Duplicates are not counted here.
        single_sentences: side -> number of examples whose text is one sentence.
            Duplicates are counted here.
    """

    pairs: int
    contents: dict[int, bytearray] = dataclasses.field(
        default_factory=lambda: defaultdict(bytearray)
    )
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    single_sentences: Counter[str] = dataclasses.field(default_factory=Counter)


class PairEncoder:
    """Encodes chunks of pairs.

    Args:
        source_vocabulary: vocabulary file of the source side.
        target_vocabulary: vocabulary file of the target side.
    """

    def __init__(self, source_vocabulary: Path, target_vocabulary: Path) -> None:
        source = load_tokenizer(source_vocabulary)
        target = source
        if target_vocabulary != source_vocabulary:
            target = load_tokenizer(target_vocabulary)
        self._tokenizers: tuple[Tokenizer, Tokenizer] = (source, target)

    def __call__(
        self, start: int, pairs: list[Pair], config: EncodingConfig
    ) -> Encoded:
        """Encodes the pairs with the indices `start`, `start` + 1, ... of a split."""
        result = Encoded(len(pairs))
        indices, texts = self._drop_by_text(start, pairs, config, result)
        source_ids = self._tokenizers[0].encode_batch([pair[0] for pair in texts])
        target_ids = self._tokenizers[1].encode_batch([pair[1] for pair in texts])
        filters = active_filters(LENGTH_FILTERS, config.cleaning)
        for index, pair, source, target in zip(
            indices, texts, source_ids, target_ids, strict=True
        ):
            reason = drop_reason((source, target), filters, config)
            if reason is not None:
                result.dropped[reason] += 1
                continue
            self._count_sentences(index, pair, config, result)
            key = index
            if config.seed is not None:
                key = hash_64(struct.pack("<qq", config.seed, index))
            links = token_links(pair, source, target, self._tokenizers)
            record = frame(example(source, target, links))
            header = SPILL_HEADER.pack(
                key, len(record), len(source), len(target), config.corpus(index)
            )
            result.contents[key % config.num_shards] += header + record
            if config.cleaning.duplicates:
                value = _hash(pair)
                file = config.num_shards + value % config.num_hash_files
                result.contents[file] += HASH_ENTRY.pack(key, value)
        return result

    def _count_sentences(
        self, index: int, pair: Pair, config: EncodingConfig, result: Encoded
    ) -> None:
        """Counts the sides that are one sentence."""
        tag = config.tags[config.corpus(index)]
        texts = (pair[0].removeprefix(tag), pair[1])
        for side, text in zip(SIDES, texts, strict=True):
            result.single_sentences[side] += "\n" not in mark_sentence_ends(text)

    def _drop_by_text(
        self, start: int, pairs: list[Pair], config: EncodingConfig, result: Encoded
    ) -> tuple[list[int], list[Pair]]:
        """Returns the pairs that no filter of texts drops, and their indices."""
        if config.max_length == math.inf:
            return list(range(start, start + len(pairs))), pairs
        filters = active_filters(TEXT_FILTERS, config.cleaning)
        indices = []
        texts = []
        for index, pair in enumerate(pairs, start=start):
            tag = config.tags[config.corpus(index)]
            untagged = (pair[0].removeprefix(tag).strip(), pair[1])
            reason = drop_reason(untagged, filters, config)
            if reason is not None:
                result.dropped[reason] += 1
                continue
            indices.append(index)
            texts.append(pair)
        return indices, texts


def _hash(pair: Pair) -> int:
    """Returns a hash of the texts, which white space does not change.

    Two different pairs among 40 million have the same hash with probability 5e-5.
    """
    texts = "\n".join(" ".join(side.split()) for side in pair)
    return hash_64(texts.encode("utf-8", "surrogatepass"))
