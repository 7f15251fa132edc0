"""Encodes pairs of texts in worker processes, into records that are to be shuffled.

Every example has a key, a hash of the seed and of its number in the source, and the
whole data set is ordered by the keys: the remainder of its key determines the shard of
an example, and a shard is sorted by key. This shuffles globally in bounded memory:
while pairs are encoded, each record is appended to a spill file of its shard, and
later one shard at a time is read and sorted (`read_sorted`).

A worker does not import TensorFlow: it starts at once and takes 50 MB, not 600.
"""

import bisect
import contextlib
import dataclasses
import functools
import hashlib
import math
import multiprocessing
import os
import re
import signal
import struct
import threading
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from t2t_keras.data.records import FRAME, example, frame
from t2t_keras.errors import UserError
from t2t_keras.problem import AlignedPair, Alignment, Cleaning, Pair, is_blank
from t2t_keras.text.sentence_ends import is_one_sentence
from t2t_keras.text.tokenizer import Tokenizer, load_tokenizer, words_of_tokens

CHUNK = 1000  # number of pairs that are sent to a worker at a time
_CHUNK_CHARACTERS = 4_000_000  # of their texts, after which fewer pairs are sent

# Precedes each record of a spill file: key, record bytes, source and target tokens,
# number of the corpus.
_HEADER = struct.Struct("<QIIII")
_BUFFER = 1 << 16  # bytes that every open spill file may hold in memory

# C0 and C1 control characters except the tab, and U+FFFD, which stands for bytes that
# could not be decoded.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd]")
# HTML entities, and what Moses' tokenizer writes: `&apos;`, `&#91;`, `@-@`.
ENTITY = re.compile(
    r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,6}|#x[0-9a-fA-F]{2,6});|(?:^| )@-@(?: |$)"
)
_NO_LETTERS = re.compile(r"[\W\d_]+")

_ENTRY = struct.Struct("<QQ")  # key of an example, hash of its texts
_AT_A_TIME = 1 << 22  # examples whose hashes are compared at a time: 64 MB


@dataclasses.dataclass(frozen=True)
class EncodingConfig:
    """How the pairs of a split are encoded.

    Attributes:
        num_shards: number of shards over which the examples are spread.
        seed: seed of the global order; None keeps the order of the source.
        max_length: pairs with more tokens on a side (EOS included) are dropped, and
            so are pairs with an empty side; infinity keeps every pair.
        cleaning: further rules to drop pairs, which apply if max_length is given.
        corpora: the number of the first pair of each corpus, if there are several.
        tags: the word before the sources of each corpus, which the cleaning ignores;
            empty if it has none.
    """

    num_shards: int
    seed: int | None = None
    max_length: float = math.inf
    cleaning: Cleaning = Cleaning()  # noqa: RUF009, it is frozen
    corpora: tuple[int, ...] = (0,)
    tags: tuple[str, ...] = ("",)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The examples of a chunk of pairs.

    Attributes:
        pairs: number of pairs in the chunk.
        spills: shard -> the bytes to append to its spill file.
        hashes: the bytes to append to the file that `repeated` reads;
            empty if duplicates are kept.
        dropped: number of dropped examples by reason, see `reasons`.
            Duplicates are not counted here.
        single_sentences: side -> number of examples whose text is one sentence.
            Duplicates are counted here.
    """

    pairs: int
    spills: dict[int, bytearray] = dataclasses.field(
        default_factory=lambda: defaultdict(bytearray)
    )
    hashes: bytearray = dataclasses.field(default_factory=bytearray)
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    single_sentences: Counter[str] = dataclasses.field(default_factory=Counter)


class PairEncoder:
    """Encodes chunks of pairs.

    Args:
        source_vocabulary: vocabulary file of the source side.
        target_vocabulary: vocabulary file of the target side.
    """

    def __init__(self, source_vocabulary: Path, target_vocabulary: Path) -> None:
        source = target = load_tokenizer(source_vocabulary)
        if target_vocabulary != source_vocabulary:
            target = load_tokenizer(target_vocabulary)
        self._tokenizers: tuple[Tokenizer, Tokenizer] = source, target

    def __call__(
        self, first: int, pairs: list[Pair], config: EncodingConfig
    ) -> Encoded:
        """Encodes the pairs number `first`, `first` + 1, ... of a split."""
        result, cleaning = Encoded(len(pairs)), config.cleaning
        kept: list[tuple[int, int, Pair]] = []  # number, number of the corpus, pair
        for number, pair in enumerate(pairs, start=first):
            corpus = bisect.bisect_right(config.corpora, number) - 1
            if config.max_length < math.inf:
                untagged = pair[0].removeprefix(config.tags[corpus]).strip(), pair[1]
                if reason := reason_by_text(untagged, cleaning):
                    result.dropped[reason] += 1
                    continue
            kept.append((number, corpus, pair))
        ids = (
            tokenizer.encode_batch([pair[side] for *_, pair in kept])
            for side, tokenizer in enumerate(self._tokenizers)
        )
        for (key, corpus, pair), source, target in zip(kept, *ids, strict=True):
            limits = config.max_length, cleaning
            if reason := reason_by_length(source, target, *limits):
                result.dropped[reason] += 1
                continue
            for side, text in zip(("source", "target"), pair, strict=True):
                result.single_sentences[side] += is_one_sentence(text)
            if config.seed is not None:
                key = hash_64(struct.pack("<qq", config.seed, key))
            aligned = isinstance(pair, AlignedPair)
            links = self._links(pair.links, source, target) if aligned else ()
            record = frame(example(source, target, links))
            result.spills[key % config.num_shards] += (
                _HEADER.pack(key, len(record), len(source), len(target), corpus)
                + record
            )
            if cleaning.duplicates:
                # Two different pairs among 40 million have the same hash with
                # probability 5e-5.
                texts = "\n".join(" ".join(side.split()) for side in pair)
                content = texts.encode("utf-8", "surrogatepass")
                result.hashes.extend(_ENTRY.pack(key, hash_64(content)))
        return result

    def _links(
        self, alignment: Alignment, source: Sequence[int], target: Sequence[int]
    ) -> list[int]:
        """Returns the links between the tokens of linked words, see `records.example`.

        Args:
            alignment: the links between the words.
            source: ids of the source.
            target: ids of the target.
        """
        links = set(alignment)
        source_words, target_words = (
            words_of_tokens(tokenizer, ids)
            for tokenizer, ids in zip(self._tokenizers, (source, target), strict=True)
        )
        return [
            place
            for t, j in enumerate(target_words)
            for s, i in enumerate(source_words)
            if (i, j) in links
            for place in (t, s)
        ]


def hash_64(content: bytes) -> int:
    """Returns a hash of 64 bits."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


# Worker processes.

Encode = Callable[[Iterable[Pair], EncodingConfig, int], Iterator[Encoded]]

_encoder = functools.cache(PairEncoder)  # the encoder of a worker process


@contextlib.contextmanager
def encoders(vocabularies: tuple[Path, Path], workers: int) -> Iterator[Encode]:
    """Yields a function that encodes pairs: (pairs, config, first) -> `Encoded`.

    The chunks come in the order of the pairs, of which the first has number `first`.
    Only a few chunks are in memory at any time, however many pairs there are.

    Args:
        vocabularies: vocabulary files of the source and of the target side.
        workers: number of processes; with 1 this process encodes.
    """
    if workers == 1:
        encoder = PairEncoder(*vocabularies)
        yield lambda pairs, config, first: (
            encoder(number, chunk, config) for number, chunk in _chunks(pairs, first)
        )
        return

    def encode(
        pairs: Iterable[Pair], config: EncodingConfig, first: int
    ) -> Iterator[Encoded]:
        waiting: deque[Future[Encoded]] = deque()
        for number, chunk in _chunks(pairs, first):
            waiting.append(pool.submit(_encode, vocabularies, number, chunk, config))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    with worker_pool(workers) as pool:
        yield encode


def _chunks(pairs: Iterable[Pair], first: int) -> Iterator[tuple[int, list[Pair]]]:
    """Cuts the pairs into lists; yields each with the number of its first pair."""
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK or characters >= _CHUNK_CHARACTERS:
            yield first, chunk
            first += len(chunk)
            chunk, characters = [], 0
    if chunk:
        yield first, chunk


def _encode(
    vocabularies: tuple[Path, Path],
    first: int,
    pairs: list[Pair],
    config: EncodingConfig,
) -> Encoded:
    return _encoder(*vocabularies)(first, pairs, config)


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yields a pool of processes, which end with this one, even if it is killed.

    Args:
        workers: number of processes; they start when the first call is submitted.

    Raises:
        UserError: a process died.
    """
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
    )
    try:
        yield pool
    except BrokenProcessPool:
        raise UserError(
            "a worker process died, perhaps out of memory; run the same command "
            "with fewer --workers, and it continues where it stopped (a script must "
            "call datagen under `if __name__ == '__main__':`)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Prepares a worker process."""
    # A terminal sends them to all its processes; the worker ends with its parent.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Ends this process when its parent has ended, for whatever reason."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


# Spill files.


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
        mode = "wb" if sizes is None else "r+b"
        opened = (path.open(mode, buffering=_BUFFER) for path in paths)
        self._files = [self.enter_context(file) for file in opened]
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
        for number, content in contents.items():
            self._files[number].write(content)

    def flush(self) -> list[int]:
        """Writes the buffers; returns the sizes of the files."""
        for file in self._files:
            file.flush()
        return [file.tell() for file in self._files]


def read_sorted(
    paths: Sequence[Path], without: np.ndarray
) -> tuple[list[bytes], np.ndarray]:
    """Returns the records of a shard in the order of their keys.

    Args:
        paths: the spill files of the shard.
        without: uint64, ascending: keys of records that are left out.

    Returns:
        The framed records, and an int32 array [N, 4] with their payload bytes, source
        tokens, target tokens, and number of the corpus.
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
    table = np.asarray(lengths, np.int32).reshape(-1, 4)[order]
    firsts = np.asarray(starts)[order].tolist()
    records = [
        content[first : first + size]
        for first, size in zip(firsts, table[:, 0].tolist(), strict=True)
    ]
    table[:, 0] -= FRAME
    return records, table


# Cleaning.


def reasons(cleaning: Cleaning) -> list[str]:
    """Returns the reasons to drop a pair, in the order in which they are checked."""
    rules = {
        "control": cleaning.control,
        "entities": cleaning.entities,
        "identical": cleaning.identical,
        "few_letters": cleaning.letters,
        "long_word": cleaning.word,
        "over_length": True,
        "ratio": cleaning.ratio,
        "duplicate": cleaning.duplicates,
    }
    return ["empty", *(reason for reason, is_on in rules.items() if is_on)]


def reason_by_text(pair: Pair, cleaning: Cleaning) -> str | None:
    """Returns why a pair is dropped for its texts, or None if it is kept."""
    if any(map(is_blank, pair)):
        return "empty"
    if cleaning.control and any(_CONTROL.search(text) for text in pair):
        return "control"
    if cleaning.entities and any(ENTITY.search(text) for text in pair):
        return "entities"
    if not (cleaning.identical or cleaning.letters or cleaning.word):
        return None
    source, target = sides = [text.split() for text in pair]
    if cleaning.identical and _folded(source) == _folded(target):
        return "identical"
    if cleaning.letters and any(_letters(side) < cleaning.letters for side in sides):
        return "few_letters"
    if cleaning.word and any(max(map(len, side)) > cleaning.word for side in sides):
        return "long_word"
    return None


def reason_by_length(
    source: Sequence[int], target: Sequence[int], max_length: float, cleaning: Cleaning
) -> str | None:
    """Returns why a pair is dropped for its number of tokens, or None if it is kept.

    Args:
        source: ids of the source, EOS last.
        target: ids of the target, EOS last.
        max_length: the most tokens of either side, EOS included.
        cleaning: the rules. The ratio is of the tokens without EOS.
    """
    shorter, longer = sorted((len(source), len(target)))
    if longer > max_length:
        return "over_length"
    if cleaning.ratio and longer - 1 > cleaning.ratio * (shorter - 1):
        return "ratio"
    return None


def _folded(words: Sequence[str]) -> str:
    """Returns the words without their case."""
    return " ".join(words).casefold()


def _letters(words: Sequence[str]) -> float:
    """Returns the share of letters among the characters of the words."""
    text = "".join(words)
    return len(_NO_LETTERS.sub("", text)) / len(text)


def repeated(paths: Sequence[Path]) -> np.ndarray:
    """Returns the keys of all examples but the first with the same hash, in order.

    It uses bounded memory, since it compares only a part of the hashes at a time.

    Args:
        paths: files with the key and the hash of each example, in their order.

    Returns:
        uint64, ascending.
    """
    total = sum(path.stat().st_size for path in paths) // _ENTRY.size
    parts = -(-total // _AT_A_TIME)
    found = [np.empty(0, np.uint64)]
    for part in range(parts):
        selected = []
        for path in paths:
            with path.open("rb") as file:
                while content := file.read(_AT_A_TIME * _ENTRY.size // 8):
                    block = np.frombuffer(content, "<u8").reshape(-1, 2)
                    selected.append(block[block[:, 1] % parts == part])
        entries = np.concatenate(selected)
        order = np.argsort(entries[:, 1], kind="stable")
        keys, hashes = entries[order].T
        found.append(keys[1:][hashes[1:] == hashes[:-1]])
    return np.sort(np.concatenate(found))


def parse_cleaning(text: str) -> Cleaning:
    """Returns the rules of `"duplicates,ratio=1.5"`; `"none"` stands for no rule.

    Raises:
        UserError: there is no such rule, or its value is not valid.
    """
    kinds = get_type_hints(Cleaning)
    rules: dict[str, Any] = {}
    for item in text.split(",") if text != "none" else []:
        name, equals, value = item.strip().partition("=")
        kind = kinds.get(name)
        if kind is None:
            raise UserError(
                f"--clean: there is no rule '{name}'; they are {', '.join(kinds)}"
            )
        if bool(equals) == (kind is bool):
            form = name if kind is bool else f"{name}=NUMBER"
            raise UserError(f"--clean: write {form}, not '{item.strip()}'")
        try:
            rules[name] = True if kind is bool else kind(value)
        except ValueError:
            raise UserError(f"--clean: '{value}' is not a number for {name}") from None
    return Cleaning(**rules)
